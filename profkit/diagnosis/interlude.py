"""What was found between the steps of a training, priced as a share of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from profkit.core.units import format_share, format_time
from profkit.derive.facts import Facts
from profkit.findings.values import Finding, Location, Saving, severity_of
from profkit.patterns.whole_run.phases import whole_run
from profkit.run.directory import Interlude
from profkit.run.plan import COUNTED_AS, ROUND

_LEAST_SHARE = 0.01
"""Of the run; less is not worth a line."""


def find_interlude(facts: Facts) -> tuple[Facts, Interlude, float] | None:
    """What was recorded between the steps, and which share of the run such work takes. None if nothing was, or if the
    steps are whole cycles, which hold it too."""
    beside, whole = facts.interlude, whole_run(facts)
    if beside is None or beside.run.interlude is None or whole is None or not len(beside.operators.rows):
        return None
    if facts.run.signals_per_step > 1 or facts.run.one_in > 1:
        return None
    share = min(1.0, beside.run.interlude.time_ns / max(whole.programs_ns, 1))
    return (beside, beside.run.interlude, share) if share > 0 else None


def in_run(facts: Facts, found: Sequence[Finding], known: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of the interlude that take time, but those already ``known`` of the steps, as findings of the run.
    What else it may show, such as memory, would need its whole length."""
    if (recorded := find_interlude(facts)) is None:
        return
    beside, interlude, share = recorded
    told = {(one.rule, one.location.file, one.location.line) for one in known if one.location is not None}
    for one in found:
        saving, place = one.saving, one.location
        if saving is None or place is None or saving.run_ns or (one.rule, place.file, place.line) in told:
            continue
        if saving.fraction * share < _LEAST_SHARE:
            continue
        gained, low, high = (part * share for part in (saving.fraction, saving.low, saving.high))
        gain = Saving(0, gained, low, high, run_ns=int(saving.fraction * interlude.time_ns))
        severity = max(one.severity, severity_of(gain), key=lambda each: each.rank)
        message = f"{one.message} {_where(beside, interlude, share)}"
        yield replace(one, saving=gain, severity=severity, message=message, account=None)


def _where(beside: Facts, interlude: Interlude, share: float) -> str:
    """``Seen between the training's steps, below train.py:40 (36 % of the run): a step there is a round of a loop.``"""
    step = {ROUND: "a round of a loop", "forward": "a call of the model"}.get(beside.run.step_signal or "")
    means = f": a step there is {step}" if step else ""
    at = Location.of(interlude.site).short
    return f"Seen between the training's steps, below {at} ({format_share(share)} of the run){means}."


def describe_interlude(facts: Facts) -> str | None:
    """That more than the steps was recorded."""
    if (recorded := find_interlude(facts)) is None:
        return None
    beside, interlude, share = recorded
    what = COUNTED_AS.get(beside.run.step_signal or "", "a part of it")
    took = f"{format_time(interlude.time_ns)} or {format_share(share)} of the run"
    at = Location.of(interlude.site).short
    return f"what passes between the steps, below {at}, was recorded too, {took}: {what}"
