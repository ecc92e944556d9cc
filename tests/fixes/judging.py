"""One case: `fix --all`, the known fix, and what both win."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.core.errors import ProfkitError
from profkit.diagnosis.fixing.diagnosing import diagnose_copy
from profkit.diagnosis.fixing.patches import unified_diff
from profkit.diagnosis.fixing.proving import (
    ALTERED,
    HELD,
    MOST_PAIRS,
    REFUSED,
    Fixes,
    Gain,
    Limits,
    gain_of,
    prove_fixes,
)
from profkit.diagnosis.fixing.rounds import prove_all
from profkit.diagnosis.fixing.slices import Version, can_take_slices, run_by_slices
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Run, Stage
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, notable
from tests.fixes.cases import Case

TIME, MEMORY, NODES = "time", "memory", "backward nodes"
CLOSE = 0.1
WIDE = 0.2
"""Of an interval: a tenth to either side."""
LEAST = 0.05
"""A known fix that wins less on this machine says nothing about how much of it was reached."""


@dataclass(frozen=True)
class Row:
    """What became of a case. ``won`` and ``possible`` are shares of what was there before, of what `fix --all` made and
    of the known fix: of the time, or, as ``measure`` says, of the memory or of the backward nodes that are kept alive.
    None if that was not measured. ``over`` is by how much more is left than with the known fix, with the interval.
    ``verdicts`` are rule, verdict and reason of each finding, ``patch`` what held, to be read as the program's author
    would."""

    name: str
    verdicts: tuple[tuple[str, str, str], ...] = ()
    won: float | None = None
    possible: float | None = None
    failure: str = ""
    measure: str = TIME
    over: tuple[float, float, float] | None = None
    patch: str = ""

    @property
    def tried(self) -> int:
        return sum(verdict != REFUSED for _, verdict, _ in self.verdicts)

    @property
    def held(self) -> int:
        return sum(verdict in (HELD, ALTERED) for _, verdict, _ in self.verdicts)

    @property
    def reached(self) -> float | None:
        """Of what could be won; None if the known fix wins next to nothing here."""
        if self.won is None or self.possible is None or self.possible < LEAST:
            return None
        return min(1.0, max(0.0, self.won / self.possible))

    @property
    def is_close(self) -> bool:
        """Whether a change held, and what is left is within a tenth of what the known fix leaves."""
        return self.held > 0 and self.over is not None and self.over[0] <= CLOSE


def judge(case: Case, work: Path, pairs: int, most_s: float, unsafe: bool) -> Row:
    """Fix a case in a folder of its own, then time the program before, after, and with its known fix by turns."""
    folder, stages = work / case.name, work / f"{case.name}-stage"
    case.lay_out(folder)
    stages.mkdir()
    stage = Stage(
        Tree(folder.resolve(), folder.resolve()), Program(case.program, is_module=case.is_module), stages.resolve()
    )
    try:
        fixes = _fix(stage, case.rule, Limits(most_s, unsafe, small=False))
        told = tuple((one.finding.rule, one.verdict, one.reason) for one in fixes.trials)
        row = Row(case.name, told, patch=unified_diff(fixes.root, fixes.after).decode("utf-8", "replace"))
        return _measured(row, stage, case, fixes.after, pairs, most_s) if case.fixed else row
    except ProfkitError as error:
        return Row(case.name, failure=str(error))


def _fix(stage: Stage, rule: str, limits: Limits) -> Fixes:
    def diagnose(changed: Mapping[Path, bytes]) -> Diagnosis:
        found = diagnose_copy(stage, Settings(), changed, limits.most_s, limits.unsafe)
        asked = [one for one in found.findings if one.rule == rule] if rule else notable(found.findings)
        return replace(found, findings=tuple(asked))

    fixes = prove_fixes(stage, diagnose({}), limits, lambda _: None)
    return prove_all(stage, diagnose, fixes, limits, lambda _: None) if fixes.held and not rule else fixes


def _measured(row: Row, stage: Stage, case: Case, after: Mapping[Path, bytes], pairs: int, most_s: float) -> Row:
    """The row with what the program before, after, and with its known fix shows by turns."""
    known = replace(stage, program=replace(stage.program, target=case.fixed))
    runs: tuple[list[Run], list[Run], list[Run]] = ([], [], [])
    is_same, end = is_known(case, after), time.monotonic() + most_s
    versions: list[Version] = [(stage, {}), (known, {})] + [(stage, after)] * (bool(after) and not is_same)
    while len(runs[0]) < pairs or not (is_told(*runs) or time.monotonic() > end or len(runs[0]) >= MOST_PAIRS):
        seen = _by_turns(versions, most_s, can_take_slices([one[0] for one in runs if one]))
        for one, run in zip(runs, (*seen, seen[1] if is_same else seen[0])[:3], strict=True):
            one.append(run)
    by_fix, possible, beside = gain_of(runs[0], runs[2]), gain_of(runs[0], runs[1]), gain_of(runs[1], runs[2])
    if case.is_of_memory and (possible.frees_memory or possible.frees_graphs):  # else only time is left to compare
        return with_memory(row, by_fix, possible)
    return replace(row, won=by_fix.share.fraction, possible=possible.share.fraction, over=_over(beside))


def _by_turns(versions: Sequence[Version], most_s: float, by_slices: bool) -> list[Run]:
    """A run of each version: one after the other, or by slices of time once those before show that it can be."""
    if by_slices:
        return run_by_slices(versions, most_s)
    return [stage.run(files, most_s) for stage, files in versions]


def is_told(before: Sequence[Run], known: Sequence[Run], after: Sequence[Run]) -> bool:
    """Whether more turns would hardly move the row: the interval beside the known fix lies on one side of a tenth, and
    what the known fix wins is known to a tenth."""
    _, low, high = _over(gain_of(known, after))
    possible = gain_of(before, known).share
    return (high <= CLOSE or low > CLOSE) and possible.high - possible.low <= WIDE


def _over(beside: Gain) -> tuple[float, float, float]:
    return (-beside.share.fraction, -beside.share.high, -beside.share.low)


def is_known(case: Case, after: Mapping[Path, bytes]) -> bool:
    """Whether the changes made the very program with the known fix, but for comments and the name of the variant."""
    changed, known = after.get(Path(case.program)), case.known_text
    return changed is not None and known is not None and len(after) == 1 and _tree(changed.decode()) == _tree(known)


def _tree(text: str) -> str:
    return ast.dump(ast.parse(re.sub(r"\bpitfall\b", "fix", text)))


def with_memory(row: Row, by_fix: Gain, possible: Gain) -> Row:
    """By the peak if the known fix lowers it, else by the backward nodes alive."""
    if possible.frees_memory:
        measure = MEMORY
        before, known, left = possible.peak_before, possible.peak_after, by_fix.peak_after
    else:
        measure = NODES
        before, known, left = (float(one) for one in (possible.nodes_before, possible.nodes_after, by_fix.nodes_after))
    if not before:
        return replace(row, won=None, possible=None, over=None)
    over = left / max(known, 1.0) - 1
    return replace(row, won=1 - left / before, possible=1 - known / before, measure=measure, over=(over, over, over))
