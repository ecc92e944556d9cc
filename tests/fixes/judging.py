"""One case: `fix --all`, the known fix, and what both win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.core.errors import ProfkitError
from profkit.diagnosis.fixing.diagnosing import diagnose_copy
from profkit.diagnosis.fixing.patches import unified_diff
from profkit.diagnosis.fixing.proving import HELD, REFUSED, Fixes, Limits, gain_of, prove_fixes
from profkit.diagnosis.fixing.rounds import prove_all
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Run, Stage
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, notable
from tests.fixes.cases import Case


@dataclass(frozen=True)
class Row:
    """What became of a case. ``won`` and ``possible`` are shares of the time before, of what `fix --all` made and of
    the known fix; None if that was not measured. ``verdicts`` are rule, verdict and reason of each finding, ``patch``
    what held, to be read as the program's author would."""

    name: str
    verdicts: tuple[tuple[str, str, str], ...] = ()
    won: float | None = None
    possible: float | None = None
    failure: str = ""
    patch: str = ""

    @property
    def tried(self) -> int:
        return sum(verdict != REFUSED for _, verdict, _ in self.verdicts)

    @property
    def held(self) -> int:
        return sum(verdict == HELD for _, verdict, _ in self.verdicts)

    @property
    def reached(self) -> float | None:
        """Of the possible time; None if the known fix wins next to nothing here."""
        if self.won is None or self.possible is None or self.possible < LEAST:
            return None
        return min(1.0, max(0.0, self.won / self.possible))


LEAST = 0.05
"""Of the time: a known fix that wins less on this machine says nothing about how much of it was reached."""


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
        won, possible = _measured(stage, case, fixes.after, pairs, most_s) if case.fixed else (None, None)
    except ProfkitError as error:
        return Row(case.name, failure=str(error))
    told = tuple((one.finding.rule, one.verdict, one.reason) for one in fixes.trials)
    patch = unified_diff(fixes.root, fixes.after).decode("utf-8", "replace")
    return Row(case.name, told, won, possible, patch=patch)


def _fix(stage: Stage, rule: str, limits: Limits) -> Fixes:
    def diagnose(changed: Mapping[Path, bytes]) -> Diagnosis:
        found = diagnose_copy(stage, Settings(), changed, limits.most_s)
        asked = [one for one in found.findings if one.rule == rule] if rule else notable(found.findings)
        return replace(found, findings=tuple(asked))

    fixes = prove_fixes(stage, diagnose({}), limits, lambda _: None)
    return prove_all(stage, diagnose, fixes, limits, lambda _: None) if fixes.held and not rule else fixes


def _measured(
    stage: Stage, case: Case, after: Mapping[Path, bytes], pairs: int, most_s: float
) -> tuple[float | None, float]:
    known = replace(stage, program=replace(stage.program, target=case.fixed))
    runs: tuple[list[Run], list[Run], list[Run]] = ([], [], [])
    for _ in range(pairs):
        runs[0].append(stage.run({}, most_s))
        runs[1].append(known.run({}, most_s))
        if after:
            runs[2].append(stage.run(after, most_s))
    won = gain_of(runs[0], runs[2]).share.fraction if after else 0.0
    return won, gain_of(runs[0], runs[1]).share.fraction
