"""What two field studies counted as causes of slow jobs, with a small program for each, and what profkit says to it.

Y. Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE 2024, table 1: 706 issues of 400
jobs at Microsoft. J. Cao et al., Understanding Performance Problems in Deep Learning Systems, ESEC/FSE 2022: 224
problems from Stack Overflow, counted in the labels that the authors published (github.com/DLPerf/DLPerf.github.io,
``empirical_study/empirical_study.csv``).

``python -m tests.field_studies`` runs the programs and prints both tables. A cause counts as covered if one of the
rules named for it reports the program. Causes that only a GPU's driver shows are played: the rule judges an account
with such devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profkit.derive.facts import Facts
from profkit.rules import all_rules
from profkit.run.whole_run import DeviceChoice
from tests.rules.watched import device, watched

PROGRAMS = Path(__file__).with_name("programs")
_IDLE, _BUSY = device(1), device(0, busy=0.9, used=(0, 4 << 30))


@dataclass(frozen=True)
class Cause:
    """A cause with its count in the study, and the rules of which one has to report it. ``shown_by`` is a program of
    this folder, the name of a scenario, or facts that are played; ``why_not`` says why it cannot be shown."""

    name: str
    count: int
    rules: tuple[str, ...] = ()
    shown_by: str | Callable[[], Facts] = ""
    why_not: str = ""


def _with_devices(*devices: object, **choice: object) -> Callable[[], Facts]:
    return lambda: watched(devices=devices, choice=DeviceChoice(**choice))


LOW_UTILISATION = (
    Cause("Interactive Job", 15, ("blocked-upload",), "interactive.py"),
    Cause("GPU Oversubscription", 6, ("idle-device",), _with_devices(_BUSY, _IDLE, build="13.0", was_initialised=True)),
    Cause("Unreleased Job", 9, ("late-release",), "unreleased.py"),
    Cause("Non-DL Job", 4, ("idle-device",), _with_devices(_IDLE)),
    Cause("Improper Batch Size", 181, ("batch-too-small",), "small_batch.py"),
    Cause("Insufficient GPU Memory", 22, why_not="the CPU has no such limit; near-capacity needs a GPU's recording"),
    Cause("Model Checkpointing", 116, ("checkpoint-stops-training",), "checkpoints.py"),
    Cause("Inefficient Host-GPU Data Transfer", 197, ("input-bound",), "host_data.py"),
    Cause("Data Preprocessing", 28, ("repeated-epoch-work", "slow-start", "input-bound"), "preprocessing.py"),
    Cause("Remote Data Read", 18, ("input-bound",), "remote_read.py"),
    Cause("External Data Usage", 18, ("slow-start",), "external_data.py"),
    Cause("Intermediate Result Upload", 14, ("blocked-upload",), "uploads.py"),
    Cause("Data Exchange", 50, ("redundant-allreduce", "small-collectives"), "accumulate-without-no-sync"),
    Cause("Long Library Installation", 12, ("slow-start",), "installation.py"),
    Cause("API Misuse", 16, ("idle-device",), _with_devices(_IDLE, build="13.0", visible="")),
)
"""Table 1 of the first study. The only recording of host-to-GPU transfers here is made on a CPU: batches that the main
process makes, which the study files there, too (``num_workers``); copies are tested on recordings of GPUs."""
PROBLEMS = (
    Cause("API: not using efficient API", 52, ("tensor-element-loop",), "python-loop-over-elements"),
    Cause("API: inefficient API usage", 45, ("growing-concatenation",), "cat-in-loop"),
    Cause("Model: confusion with computation model", 27, ("retained-graph", "growing-live-tensors"), "loss-list"),
    Cause("API: not using batch API", 18, ("per-sample-fetch",), "tensordataset-one-by-one"),
    Cause("Library: buggy library version", 15, why_not="a defect of one release, not of a program"),
    Cause("Data: inefficient data transmission", 12, ("input-bound",), "host_data.py"),
    Cause("Model: improper hyper parameter", 12, ("batch-too-small",), "small_batch.py"),
    Cause("Library: mismatched library version", 9, ("idle-device",), _with_devices(_IDLE, build="")),
    Cause("Hardware: hardware and code mismatch", 7, ("float64-compute",), "float64-from-numpy"),
    Cause("Model: inefficient model structure", 6, ("unrolled-recurrence",), "elman-cell-by-hand"),
    Cause("Data: improper data input", 6, ("padded-batch",), "padded-to-maximum"),
    Cause("Model: improper model parameter", 5, ("dense-embedding-gradient",), "dense-embedding-gradient"),
    Cause("Hardware: hardware and library mismatch", 4, why_not="needs two kinds of hardware"),
    Cause("Data: inefficient data preprocessing", 3, ("repeated-epoch-work", "slow-start"), "preprocessing.py"),
    Cause("Hardware: improper configuration", 3, ("thread-oversubscription",), "too-many-threads"),
)
"""The root causes of the second study. Its programs use TensorFlow and Keras; these are the same mistakes in
PyTorch."""


def reported(facts: Facts, rules: tuple[str, ...]) -> list[str]:
    """Which of the rules find something in facts that are played."""
    return [name for name in rules if list(all_rules()[name].check(facts))]


def share_covered(causes: tuple[Cause, ...], covered: set[str]) -> float:
    """By the study's own counts."""
    return sum(cause.count for cause in causes if cause.name in covered) / sum(cause.count for cause in causes)
