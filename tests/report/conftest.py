"""Diagnoses written by hand, for the reports to render."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings import (
    Diagnosis,
    Finding,
    Kind,
    Location,
    RunSummary,
    Saving,
    Severity,
    TimeShare,
    Timing,
)
from profkit.pictures.values import Branch, Lane, Mark, MemoryCurve, Pictures, StepPicture

_LEAK = Finding(
    rule="retained-graph",
    kind=Kind.FAULT,
    severity=Severity.HIGH,
    message="The list `losses` keeps the graph of every step alive.",
    count=5,
    confidence=0.9,
    fix="Append the number, not the graph:\n    losses.append(loss.detach())",
    location=Location("train.py", 31, "train_step", "losses.append(loss)"),
    also=(Location("train.py", 44, "evaluate"),),
    saving=Saving(5_300_000, 0.43, 0.3, 0.5, 4_000_000),
    evidence={"growth_bytes_per_step": 4_000_000},
)
_CHANCE = Finding(
    rule="launch-bound",
    kind=Kind.OPPORTUNITY,
    severity=Severity.MEDIUM,
    message="The operators are small.",
    count=1,
    confidence=0.6,
    fix="torch.compile(model)",
    location=Location("/home/user/models/network.py", 12, "forward", "", "def"),
    saving=Saving(1_000_000, 0.08, 0.08, 0.08),
)
_REMARK = Finding(
    rule="zero-filled-gradients",
    kind=Kind.FAULT,
    severity=Severity.INFO,
    message="Gradients are filled with zeros.",
    count=5,
    confidence=1.0,
    fix="Leave set_to_none alone.",
)


@pytest.fixture
def leak() -> Finding:
    return _LEAK


@pytest.fixture
def full_diagnosis() -> Diagnosis:
    """One finding of each kind, two rules that could not look, one thing wrong with the recording."""
    return Diagnosis(
        run=RunSummary(("python", "train.py"), "3.11.2", "2.13.0", "cpu", None, {"trace": "a.pt.trace.json.gz"}),
        timing=Timing(
            5,
            12_300_000,
            "the profiler's step marks",
            11_000_000,
            0.118,
            (TimeShare("forward", 9_000_000, 0.732), TimeShare("unexplained", 300_000, 0.024)),
        ),
        findings=(_LEAK, _CHANCE, _REMARK),
        skipped={"pageable-transfer": "the recording holds no GPU", "fragmentation": "the recording holds no GPU"},
        health=("The trace was cut off: 3 of 8 steps are missing.",),
    )


@pytest.fixture
def drawn_diagnosis(full_diagnosis: Diagnosis) -> Diagnosis:
    """The same with pictures: two steps on a device, the first finding in the first half of each."""
    branches = (
        Branch(0, "train.py:31 losses.append(loss)", 0.0, 0.75, 3_000_000),
        Branch(0, "backward", 0.75, 0.25, 1_000_000),
        Branch(1, "aten::mm", 0.0, 0.5, 2_000_000),
        Branch(2, "gemm", 0.0, 0.5, 2_000_000),
    )
    pictures = Pictures(
        parts=("device: computing", "idle: waiting for data"),
        steps=(
            StepPicture(7, 10_000_000, (6_000_000, 4_000_000), 0.0, 0.5),
            StepPicture(8, 10_000_000, (8_000_000, 2_000_000), 0.5, 1.0),
        ),
        duration_ns=20_000_000,
        lanes=(Lane("device: kernels", "//AA" * 2, 0.5), Lane("waiting for data", "AA//" * 2, 0.5)),
        marks=(Mark(0, ((0.0, 0.25), (0.5, 0.75))),),
        memory=MemoryCurve("Af/AAf/A", 0, 2_890_000_000),
        branches=branches,
        of_device=True,
    )
    return replace(full_diagnosis, pictures=pictures)


@pytest.fixture
def empty_diagnosis() -> Diagnosis:
    """Nothing is known, nothing was found."""
    return Diagnosis(RunSummary((), None, None, None, None), Timing(0, None, ""), (), {}, ())


@pytest.fixture
def clean_diagnosis() -> Diagnosis:
    """Five steps with nothing to find."""
    return Diagnosis(RunSummary(("train.py",), None, None, None, None), Timing(5, 12_300_000, ""), (), {}, ())


@pytest.fixture
def hostile_finding() -> Finding:
    """Every text of it tries to be taken for something else."""
    attack = "<script>alert(1)</script> [link](http://e.invalid) `a` | @torch.no_grad() \x1b[31m\u202e"
    return Finding(
        rule="<b>rule</b>",
        kind=Kind.FAULT,
        severity=Severity.LOW,
        message=attack,
        count=1,
        confidence=1.0,
        fix=f"```\n{attack}\n```",
        location=Location(f"a b/<i>{attack}.py", 3, "<module>", f"</pre>{attack}"),
        evidence={"<u>": attack},
    )
