"""What moved between two sides: operators, lines and findings.

Single operators are noisier than the step, and among a hundred a few seem to change by chance. So one is named for its
time only if the step time changed too and its values before and after do not overlap. With four steps on each side
chance does that in 2 of 70 cases (the most extreme outcome of the rank sum test; Mann, Whitney, Annals of Mathematical
Statistics 18, 1947). Calls per step are counted, not measured, so changes in them are always named.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from profkit.diagnosis.compare.comparison import Fate, FindingMove, Move
from profkit.diagnosis.compare.recorded import NOTHING, LineKey, Recorded, Work, line_key, merge
from profkit.findings.values import Finding, Location

LEAST_SHARE = 0.005
"""The share of the step at which a finding counts (`findings.severity_of`)."""
_Key = TypeVar("_Key", bound=Hashable)
FindingKey = tuple[str, LineKey]


def operator_moves(
    before: Sequence[Recorded], after: Sequence[Recorded], step_ns: int, by_time: bool
) -> tuple[Move, ...]:
    one, other = merge([run.operators for run in before]), merge([run.operators for run in after])
    names = _moved(one, other, step_ns, by_time)
    return _ranked([_move(name, one.get(name, NOTHING), other.get(name, NOTHING)) for name in names])


def line_moves(before: Sequence[Recorded], after: Sequence[Recorded], step_ns: int, by_time: bool) -> tuple[Move, ...]:
    """By line; none if a side knows no lines, because all would seem new."""
    one, other = merge([run.lines for run in before]), merge([run.lines for run in after])
    if not one or not other:
        return ()
    sites = {key: site for run in (*before, *after) for key, site in run.sites.items()}
    moves = []
    for key in _moved(one, other, step_ns, by_time):
        move = _move(key[2] or key[1], one.get(key, NOTHING), other.get(key, NOTHING))
        moves.append(replace(move, location=Location.of(sites[key])))
    return _ranked(moves)


def finding_moves(before: Sequence[Recorded], after: Sequence[Recorded]) -> tuple[FindingMove, ...]:
    """What became of each finding: new ones first, then changed, gone, unknown and unchanged ones."""
    pairs = _pair(_findings(before), _findings(after))
    moves = [_finding_move(present.rule, a, b, before, after) for a, b in pairs if (present := a or b)]
    order = (Fate.NEW, Fate.CHANGED, Fate.GONE, Fate.UNKNOWN, Fate.SAME)
    return tuple(sorted(moves, key=lambda move: (order.index(move.fate), move.rule)))


def _moved(one: Mapping[_Key, Work], other: Mapping[_Key, Work], step_ns: int, by_time: bool) -> list[_Key]:
    found = []
    for key in {**one, **other}:
        a, b = one.get(key, NOTHING), other.get(key, NOTHING)
        apart = max(a.step_ns) < min(b.step_ns) or max(b.step_ns) < min(a.step_ns)
        matters = abs(b.median_ns - a.median_ns) >= LEAST_SHARE * step_ns
        if matters and (a.calls != b.calls or (by_time and apart)):
            found.append(key)
    return found


def _move(name: str, a: Work, b: Work) -> Move:
    return Move(name, round(a.median_ns), round(b.median_ns), a.calls, b.calls)


def _ranked(moves: list[Move]) -> tuple[Move, ...]:
    return tuple(sorted(moves, key=lambda move: (-abs(move.change_ns), move.name)))


def _findings(side: Sequence[Recorded]) -> dict[FindingKey, Finding]:
    """The findings of most runs of a side, each as in the first run that has it."""
    seen: dict[FindingKey, list[Finding]] = {}
    for run in side:
        own = {_finding_key(finding): finding for finding in reversed(run.diagnosis.findings)}
        for key, finding in own.items():
            seen.setdefault(key, []).append(finding)
    return {key: found[0] for key, found in seen.items() if 2 * len(found) > len(side)}


def _finding_key(finding: Finding) -> FindingKey:
    place = finding.location
    return finding.rule, line_key(place.file, place.function, place.source) if place else ("", "", "")


def _pair(
    one: Mapping[FindingKey, Finding], other: Mapping[FindingKey, Finding]
) -> list[tuple[Finding | None, Finding | None]]:
    """The findings of both sides, each with the other side's of the same line; of those left over, with one of the same
    rule and source text, which may have moved to another function or file; then with one of the same rule, if each side
    has only one left, whose line was changed."""
    pairs: list[tuple[Finding | None, Finding | None]] = [(one[key], other[key]) for key in one if key in other]
    left = [finding for key, finding in one.items() if key not in other]
    right = [finding for key, finding in other.items() if key not in one]
    for key_of in (_source_key, _rule_key):
        for key in dict.fromkeys(map(key_of, left)):
            a, b = ([finding for finding in side if key_of(finding) == key] for side in (left, right))
            if len(a) == len(b) == 1 and all(key):
                pairs.append((a[0], b[0]))
                left.remove(a[0])
                right.remove(b[0])
    return [*pairs, *((a, None) for a in left), *((None, b) for b in right)]


def _source_key(finding: Finding) -> tuple[str, ...]:
    place = finding.location
    return finding.rule, " ".join(place.source.split()) if place else ""


def _rule_key(finding: Finding) -> tuple[str, ...]:
    return (finding.rule,)


def _finding_move(
    rule: str, a: Finding | None, b: Finding | None, before: Sequence[Recorded], after: Sequence[Recorded]
) -> FindingMove:
    missing = () if a and b else after if a else before
    reason = next((run.diagnosis.skipped[rule] for run in missing if rule in run.diagnosis.skipped), "")
    if a and b:
        fate = Fate.CHANGED if _differs(a, b) else Fate.SAME
    else:
        fate = Fate.UNKNOWN if reason else Fate.GONE if a else Fate.NEW
    present = b or a
    return FindingMove(
        fate=fate,
        rule=rule,
        location=present.location if present else None,
        before_severity=a.severity if a else None,
        after_severity=b.severity if b else None,
        before_fraction=_fraction(a),
        after_fraction=_fraction(b),
        reason=reason,
    )


def _differs(a: Finding, b: Finding) -> bool:
    """Whether the likely ranges of the saving do not overlap; without savings, whether the severity differs."""
    if a.saving is None or b.saving is None:
        return a.severity is not b.severity
    return a.saving.high < b.saving.low or b.saving.high < a.saving.low


def _fraction(finding: Finding | None) -> float | None:
    return finding.saving.fraction if finding and finding.saving else None
