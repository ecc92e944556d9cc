"""The sums of a survey: how many recordings are judged in agreement with the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.h100.survey import FIX, PITFALL, PLAIN, PROGRAMS, Row, Sought

_WITHIN = 0.1
_NEAR = 0.2
_FAR_OFF = 0.3
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Part:
    """``count`` of ``of`` are as the name of the figure says."""

    count: int
    of: int

    def __str__(self) -> str:
        return f"{self.count} of {self.of}"


@dataclass(frozen=True, slots=True)
class Pitfalls:
    """Recordings of pitfalls that were found: on the marked line, in its function if the trace shows no lines, with the
    line among the further ones, and among the first two findings."""

    found: Part
    on_line: Part
    in_function: Part
    besides: Part
    among_first: Part


@dataclass(frozen=True, slots=True)
class Sums:
    """``surprises`` are predictions that are off by more than three tenths of the step and whose interval excludes the
    measurement. ``false_alarms`` are clean recordings with a finding of medium or high severity; ``grave_fixes`` are
    fixes with one, which may be right, as they fix only the pitfall. ``rank_correlation`` is that of predictions with
    measurements. ``plain_near_blocks`` and ``run_near_blocks`` allow for what the measurement itself varied by."""

    diagnosed: Part
    gpu_bound_plain_within: Part
    plain_within: Part
    run_within: Part
    plain_near: Part
    run_near: Part
    plain_near_blocks: Part
    run_near_blocks: Part
    covered: Part
    with_rule: Pitfalls
    without_rule: Pitfalls
    priced: Part
    median_error: float | None
    ninth_decile_error: float | None
    rank_correlation: float | None
    surprises: tuple[str, ...]
    false_alarms: tuple[str, ...]
    clean: int
    grave_fixes: Part


def sum_up(rows: Sequence[Row]) -> Sums:
    programs = [row for row in rows if row.recording.section == PROGRAMS]
    plain = [row for row in programs if row.recording.form == PLAIN]
    sought = [row.sought for row in programs if row.recording.variant == PITFALL and row.sought is not None]
    errors = [one.error for one in sought if one.error is not None]
    return Sums(
        diagnosed=_part(row.error is None for row in rows),
        gpu_bound_plain_within=_part(is_step_right(row) for row in plain if row.is_gpu_bound),
        plain_within=_part(map(is_step_right, plain)),
        run_within=_part(is_step_right(row) for row in programs if row.recording.form != PLAIN),
        plain_near=_part(is_step_right(row, _NEAR) for row in plain),
        run_near=_part(is_step_right(row, _NEAR) for row in programs if row.recording.form != PLAIN),
        plain_near_blocks=_part(map(is_step_near_blocks, plain)),
        run_near_blocks=_part(is_step_near_blocks(row) for row in programs if row.recording.form != PLAIN),
        covered=_part(map(is_step_covered, programs)),
        with_rule=_pitfalls([one for one in sought if one.exists]),
        without_rule=_pitfalls([one for one in sought if not one.exists]),
        priced=_part(one.error is not None for one in sought if one.found),
        median_error=float(np.median(errors)) if errors else None,
        ninth_decile_error=float(np.quantile(errors, 0.9)) if errors else None,
        rank_correlation=_rank_correlation(sought),
        surprises=tuple(row.recording.name for row in programs if row.sought is not None and is_surprise(row.sought)),
        false_alarms=tuple(row.recording.name for row in rows if row.clean and row.grave),
        clean=sum(row.clean for row in rows),
        grave_fixes=_part(bool(row.grave) for row in programs if row.recording.variant == FIX and not row.clean),
    )


def is_step_right(row: Row, within: float = _WITHIN) -> bool:
    """Whether the stated step time is within a tenth, or so much, of the measured one."""
    return row.ratio is not None and abs(row.ratio - 1) <= within


def is_step_near_blocks(row: Row) -> bool:
    """Whether the stated step time is within a fifth of what some of the seven measured blocks may have taken."""
    if row.step_ms is None or row.blocks_ms is None:
        return is_step_right(row, _NEAR)
    least_ms, most_ms = row.blocks_ms
    return (1 - _NEAR) * least_ms <= row.step_ms <= (1 + _NEAR) * most_ms


def is_step_covered(row: Row) -> bool:
    """Whether the measured step time is within a tenth of the stated range."""
    if row.step_ms is None or not row.measured_ms:
        return False
    least_ms = row.step_ms if row.least_ms is None else row.least_ms
    most_ms = row.step_ms if row.most_ms is None else row.most_ms
    return least_ms / row.measured_ms <= 1 + _WITHIN and most_ms / row.measured_ms >= 1 - _WITHIN


def is_surprise(sought: Sought) -> bool:
    return sought.error is not None and sought.error > _FAR_OFF and not sought.is_covered


def _rank_correlation(sought: Sequence[Sought]) -> float | None:
    """Spearman's rank correlation of predicted and measured savings. Ties share their mean rank."""
    pairs = np.array([(one.predicted, one.measured) for one in sought if one.error is not None], dtype=np.float64)
    if len(pairs) < 3:
        return None
    less, same = (how(pairs[:, None], pairs[None]).sum(axis=1) for how in (np.greater, np.equal))
    ranks = less + same / 2
    return float(np.corrcoef(ranks.T)[0, 1])


def _pitfalls(sought: Sequence[Sought]) -> Pitfalls:
    return Pitfalls(
        found=_part(one.found for one in sought),
        on_line=_part(bool(one.line) for one in sought if one.function is None),
        in_function=_part(one.function for one in sought if one.function is not None),
        besides=_part(one.besides for one in sought),
        among_first=_part(one.rank is not None and one.rank <= _FIRST for one in sought),
    )


def _part(answers: Iterable[bool]) -> Part:
    known = list(answers)
    return Part(sum(known), len(known))
