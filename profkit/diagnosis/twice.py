"""Does a program compute the same twice? It runs twice, each time in a copy of its folder, and the first tensor whose
bits differ is named: what goes before it was the same, so the cause lies between."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from profkit.core.errors import ProfkitError
from profkit.diagnosis.fixing.trees import copy_tree, tree_of

_LONGEST_ERROR = 2000
"""Characters: the last line of a traceback is among them."""
Seen = tuple[int, str, str, str]
"""The step, what the tensor is, its name, and the digest of its bits."""


class RunFailed(ProfkitError):
    """A run of the program failed, or took too long."""


class FirstDifference(Struct, frozen=True):
    """The first tensor that differs: in which ``step``, of which ``kind``, its ``name``, and how many ``others`` of
    that step and kind differ too. ``kind`` is empty if the runs do different things from there on."""

    step: int
    kind: str
    name: str
    others: int = 0


class Twice(Struct, frozen=True):
    """Two runs of a program: how many tensors of how many steps were compared, and the first that differs, if any."""

    tensors: int
    steps: int
    first: FirstDifference | None = None


def run_twice(script: Path, arguments: tuple[str, ...], timeout_s: float) -> Twice:
    """Run a script twice and compare the bits of its tensors. Raises `RunFailed`."""
    tree = tree_of(script, Path.cwd())
    inside = script.resolve().relative_to(tree.root)
    runs = []
    for _ in range(2):
        with TemporaryDirectory(prefix="profkit-twice-") as folder:
            copy = Path(folder).resolve() / tree.root.name
            copy_tree(tree, copy, {})
            working = copy / tree.working.relative_to(tree.root)
            result = Path(folder) / "bits.jsonl"
            _run(copy / inside, arguments, working, result, timeout_s)
            runs.append(_read(result))
    return compare_runs(*runs)


def compare_runs(one: list[Seen], other: list[Seen]) -> Twice:
    """The first difference of two runs."""
    tensors, steps = min(len(one), len(other)), len({seen[0] for seen in one if seen[1] == "parameter"})
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a[:3] != b[:3]:
            return Twice(tensors, steps, FirstDifference(a[0], "", ""))
        if a[3] != b[3]:
            pairs = zip(one[at + 1 :], other[at + 1 :], strict=False)
            others = sum(x[:2] == y[:2] == a[:2] and x[3] != y[3] for x, y in pairs)
            return Twice(tensors, steps, FirstDifference(*a[:3], others))
    if len(one) != len(other):
        last = max(one, other, key=len)[tensors]
        return Twice(tensors, steps, FirstDifference(last[0], "", ""))
    return Twice(tensors, steps)


def _run(script: Path, arguments: tuple[str, ...], working: Path, result: Path, timeout_s: float) -> None:
    child = [sys.executable, "-m", "profkit.collect.launch.bits", f"--result={result}", "--"]
    try:
        done = subprocess.run(  # noqa: S603  # what the user asked to run
            [*child, os.path.relpath(script, working), *arguments],
            cwd=working,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"a run did not end within {timeout_s:.0f} s") from None
    if done.returncode:
        error = done.stderr.decode("utf-8", "replace")[-_LONGEST_ERROR:].strip().splitlines()
        raise RunFailed(f"a run ended with status {done.returncode}{f': {error[-1]}' if error else ''}")


def _read(result: Path) -> list[Seen]:
    try:
        return [msgspec.json.decode(line, type=Seen) for line in result.read_bytes().splitlines()]
    except (OSError, msgspec.DecodeError) as error:
        raise RunFailed(f"what a run noted cannot be read: {error}") from error
