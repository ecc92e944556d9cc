"""One round of changes after the other, until nothing more is won: what one change uncovers, the next round finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from profkit.core.errors import ProfkitError
from profkit.diagnosis.fixing.proving import LINE_ALTERED, Fixes, Limits, Trial, prove_fixes
from profkit.diagnosis.fixing.turns import Stage
from profkit.findings.values import Diagnosis, Finding

MOST_ROUNDS = 5
"""A program whose fifth recording still shows something new to change is better read by a person."""


def prove_all(
    stage: Stage,
    diagnose: Callable[[Mapping[Path, bytes]], Diagnosis],
    fixes: Fixes,
    limits: Limits,
    tell: Callable[[str], None],
) -> Fixes:
    """Go on from a first round as long as a change holds. ``diagnose`` records the program with changed files. What has
    been tried in vain is not tried again; what another change stood in the way of is."""
    for number in range(2, MOST_ROUNDS + 1):
        tried = len(fixes.trials)
        tell(f"recording the program with what held, round {number}")
        known = {_sign(trial.finding) for trial in fixes.trials if trial.reason != LINE_ALTERED}
        try:
            diagnosis = diagnose(fixes.after)
            new = tuple(finding for finding in diagnosis.findings if _sign(finding) not in known)
            more = prove_fixes(stage, replace(diagnosis, findings=new), limits, tell, fixes)
        except ProfkitError as error:  # what held so far took minutes, and holds
            tell(f"round {number} ended early: {error}")
            break
        fixes = replace(more, skipped=fixes.skipped)
        if not _some_held(more.trials[tried:]):
            break
    return fixes


def _some_held(trials: tuple[Trial, ...]) -> bool:
    return any(trial.is_kept for trial in trials)


def _sign(finding: Finding) -> tuple[str, str, str]:
    """What tells two findings apart although lines have moved: the rule, the file and the text of the line."""
    place = finding.location
    return (finding.rule, "", "") if place is None else (finding.rule, place.file, place.source)
