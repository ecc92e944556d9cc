"""Handwritten diagnoses for the reports to render."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profkit.diagnosis.pictures.of_ranks import draw_ranks
from profkit.findings.pictures import Branch, Lane, Mark, MemoryCurve, MemoryHolder, Pictures, StepPicture
from profkit.findings.values import (
    CallSummary,
    Diagnosis,
    Finding,
    GroupSummary,
    Kind,
    LaunchSummary,
    Location,
    OwnTime,
    RankDetails,
    RankStep,
    RankSummary,
    RankWait,
    RunSummary,
    Saving,
    Severity,
    SizeCount,
    TimeShare,
    Timing,
)

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
    """One finding of each kind, two rules that could not look, one health note."""
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
    """The same with pictures: two steps on a device, with the first finding in the first half of each."""
    branches = (
        Branch(0, "train.py:31", 0.0, 0.75, 3_000_000, "losses.append(loss)"),
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
        memory=MemoryCurve("Af/AAf/A", 0, 2_890_000_000, (MemoryHolder("train.py:31", 4_000_000, "x @ <w>"),), 1_500),
        branches=branches,
        of_device=True,
    )
    return replace(full_diagnosis, pictures=pictures)


@pytest.fixture
def launched_diagnosis(drawn_diagnosis: Diagnosis) -> Diagnosis:
    """Eight ranks on two hosts, ten steps of 120 ms: the others wait 41 ms for rank 3 in all steps but the first."""
    return replace(drawn_diagnosis, launch=launch_of(8))


def launch_of(count: int) -> LaunchSummary:
    """A launch of this many ranks, of which the fourth is late."""
    steps = 10
    caused, waited = np.zeros((count, steps), np.int64), np.full((count, steps), 41_000_000)
    waited[:, 0] = 1_000_000
    waited[3] = 0
    caused[3, 1:] = 41_000_000
    late: dict[str, Any] = {
        "late_steps": 9,
        "late_ns": 41_000_000,
        "caused_ns": 36_900_000,
        "cause": "input",
        "kept_waiting": count - 1,
        "location": Location("train.py", 31, "train", "for batch in loader:"),
    }
    ranks = [
        RankSummary(
            at,
            f"rank{at}",
            "a" if at < count // 2 and at != 3 else "b",
            "NVIDIA H100 80GB HBM3",
            steps,
            120_000_000,
            waited_ns=int(waited[at].mean()),
            exposed_ns=2_000_000,
            **(late if at == 3 else {}),
            details=_details_of(at, count) if count <= 64 or at < 16 else None,
        )
        for at in range(count)
    ]
    group = GroupSummary(
        "default_pg",
        count,
        count,
        12.0,
        100_000_000,
        10_000_000,
        (SizeCount(65_536, 8.0, 200_000), SizeCount(1 << 25, 4.0, 99_800_000)),
    )
    picture = draw_ranks(range(count), range(10, 20), caused, waited)
    notes = ("rank 7: its clock is a day off, and was set by the collectives that it shares with rank 0",)
    return LaunchSummary(count, tuple(ranks), steps, 120_000_000, (group,), picture, 3, notes)


def _details_of(rank: int, count: int) -> RankDetails:
    """The details for `launch_of`: rank 3 loads data for as long as the others wait for it."""
    is_late, line = rank == 3, Location("train.py", 31, "train", "for batch in loader:")
    waited, caused = (0, 36_900_000) if is_late else (37_000_000, 0)
    loading = OwnTime("input", 39_000_000 if is_late else 2_000_000, 2_000_000, line)
    call = CallSummary(
        "all_reduce",
        "default_pg",
        count,
        25_000_000,
        2,
        4,
        10,
        waited,
        caused,
        2_500_000,
        500_000,
        3,
        9,
        Location("train.py", 40, "train", "loss.backward()"),
    )
    others = tuple(RankWait(at, 37_000_000) for at in range(min(count, 9)) if at != 3)
    return RankDetails(
        step_ns=120_000_000,
        own=(OwnTime("compute", 79_000_000, 79_000_000), loading),
        uncompared_ns=0,
        waits_for=() if is_late else (RankWait(3, 36_000_000),),
        awaited_by=others if is_late else (),
        collectives=12.0,
        compared=1.0,
        calls=(call,),
        steps=tuple(RankStep(at, 120_000_000, 118_000_000 - waited, waited, 2_000_000, caused) for at in range(10, 20)),
        clock_behind_ns=-86_400_000_000_000 if rank == 7 else 0,
    )


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
    """Each of its texts tries to be taken for something else."""
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
