"""What a step waits for, as words: the verdict says it in shares, and the table's first sentence in times. Both take
their figures from the rows of that table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from profkit.core.units import format_share, format_time
from profkit.findings.values import TimeShare, Timing
from profkit.patterns.time.bounds import Bound, find_bound, is_busy, is_of_device, is_of_host, is_unrecorded
from profkit.patterns.time.idling import QUEUED, UNRECORDED_WAIT
from profkit.patterns.time.shares import BETWEEN, COMMUNICATING, COMPUTING, COPYING, FIRST_LAG, IDLE, INHERITED

_MOST_ROWS = 2
_LEAST_SHARE = 0.05
"""A smaller row is not named, unless it is the largest of its kind."""
_LEAST_DIFFERENCE = 0.03
"""By this much the device's share of the recorded step must differ to be told beside that without the recording."""
_DONE_EARLY = 0.9
"""A host that is done after less than this share of the step waits for the device."""
_DOES = {
    COMPUTING: ("computes", ""),
    COMMUNICATING: ("communicates", " while nothing is computed"),
    COPYING: ("copies and clears memory", ""),
    INHERITED: ("finishes what was launched before the recording", ""),
}
"""What the device does: the words before and after its share of the step."""
_SAYS = {
    QUEUED: "work is queued, but nothing runs",
    UNRECORDED_WAIT: "the host waits for work that is missing",
    "nothing recorded": "the host does nothing that was recorded",
}
"""Reasons whose labels need other words in a sentence."""
_IDLE_FOR = (is_unrecorded, is_of_host)
_Figure = Callable[[Sequence[TimeShare]], str]


def has_device(timing: Timing) -> bool:
    """Whether the table divides the time of a device."""
    return any(share.label.startswith(IDLE) or is_of_device(share.label) for share in timing.shares)


def describe_bound(timing: Timing) -> str:
    """What the step waits for, in shares; empty without a device. If the recorded step waits for something else, that
    comes first."""
    if not has_device(timing):
        return ""
    words = [_Words(shares, lambda rows: format_share(_fraction(rows)), "") for shares in _tables(timing)]
    return _join(timing, words)


def explain_bound(timing: Timing) -> str:
    """The same in times, as a sentence."""
    if not has_device(timing):
        return ""
    step_ns = timing.step_time_ns if timing.unprofiled_step_time_ns is None else timing.unprofiled_step_time_ns
    lengths_ns = (step_ns, timing.step_time_ns)
    words = [
        _Words(shares, _in_times, f" of {format_time(length_ns)}" if length_ns is not None else "")
        for shares, length_ns in zip(_tables(timing), lengths_ns, strict=False)
    ]
    told = _join(timing, words)
    host_ns = timing.host_step_time_ns
    if words[0].bound is Bound.DEVICE and step_ns and host_ns is not None and host_ns < _DONE_EARLY * step_ns:
        told += f"; the host is done in {format_time(host_ns)}"
    return f"{told[:1].upper()}{told[1:]}"


def _in_times(rows: Sequence[TimeShare]) -> str:
    return format_time(sum(row.time_ns_per_step for row in rows))


def _tables(timing: Timing) -> tuple[tuple[TimeShare, ...], ...]:
    """The step without the recording, and as recorded if that is another."""
    return (timing.shares, timing.recorded_shares) if timing.recorded_shares else (timing.shares,)


class _Words(Struct, frozen=True):
    """The rows of a table as words. ``figure`` says how much some of them are, ``whole`` of how much."""

    shares: Sequence[TimeShare]
    figure: _Figure
    whole: str

    @property
    def bound(self) -> Bound | None:
        return find_bound([(row.label, row.fraction) for row in self.shares])

    @property
    def working(self) -> list[TimeShare]:
        return [row for row in self.shares if is_busy(row.label)]

    @property
    def lag(self) -> list[TimeShare]:
        """What passed before the first kernel, if that is much."""
        lag = [row for row in self.shares if row.label == FIRST_LAG]
        return lag if _fraction(lag) >= _LEAST_SHARE else []

    @property
    def verdict(self) -> str:
        step = "the rest of the step" if self.lag else "the step"
        missing, host = (_fraction([row for row in self.shares if is_so(row.label)]) for is_so in _IDLE_FOR)
        mixture = (
            f"part of {step} waits for what was not recorded" if missing > host else f"host and device share {step}"
        )
        return {
            Bound.DEVICE: f"the device bounds {step}",
            Bound.HOST: f"the host bounds {step}",
            Bound.MIXTURE: mixture,
            Bound.UNRECORDED: f"{step} waits for what was not recorded",
            None: "nothing is known of the step",
        }[self.bound]

    @property
    def works(self) -> str:
        return f"{self.figure(self.working)}{self.whole}"

    @property
    def short(self) -> str:
        """With the largest reason alone."""
        counts = {Bound.HOST: is_of_host, Bound.UNRECORDED: is_unrecorded}.get(self.bound or Bound.DEVICE)
        largest = f" ({self._reasons(counts, most=1)})" if counts else ""
        return f"{self.verdict}{largest}, the device works {self.works}"

    @property
    def full(self) -> str:
        """With what the device does, and what it waits for."""
        bound = self.bound
        if bound is None:
            return self.verdict
        if bound in (Bound.DEVICE, Bound.MIXTURE):
            told = (
                f"{self.verdict}: {'it' if bound is Bound.DEVICE else 'the device'} works {self.works}{self._deeds()}"
            )
            told += f"; it idles: {self._reasons(is_of_host, is_unrecorded)}" if bound is Bound.MIXTURE else ""
        else:
            counts = is_of_host if bound is Bound.HOST else is_unrecorded
            told = f"{self.verdict}: {self._reasons(counts)}; the device works {self.works}"
        passed = f"; {self.figure(self.lag)} passed before the first kernel began, cause not recorded"
        return told + (passed if self.lag else "")

    def _deeds(self) -> str:
        """`` (computes 73 %, copies and clears memory 13 %)``: what the device does if it does not just compute; and
        how long it pauses."""
        done = _longest(self.working)
        parts = [f"{_DOES[row.label][0]} {self.figure([row])}{_DOES[row.label][1]}" for row in done]
        doing = f" ({', '.join(parts)})" if [row.label for row in done] != [COMPUTING] and done else ""
        pauses = [row for row in self.shares if row.label == BETWEEN and row.fraction >= _LEAST_SHARE]
        return doing + (f", and pauses {self.figure(pauses)} between queued kernels" if pauses else "")

    def _reasons(self, *counts: Callable[[str], bool], most: int = _MOST_ROWS) -> str:
        """``launching work 61 %, waiting for data 20 %``."""
        named = _longest([row for row in self.shares if any(counted(row.label) for counted in counts)])[:most]
        reasons = ((row.label.removeprefix(IDLE), row) for row in named)
        return ", ".join(f"{_SAYS.get(reason, reason)} {self.figure([row])}" for reason, row in reasons)


def _join(timing: Timing, words: Sequence[_Words]) -> str:
    told, *before = words
    if not before or abs(_fraction(told.working) - _fraction(before[0].working)) < _LEAST_DIFFERENCE:
        return told.full
    if told.bound is before[0].bound:
        return f"{told.full} (as recorded {before[0].works})"
    estimated = "by estimate" if timing.unprofiled_from == "estimated" else "as measured"
    return f"as recorded {before[0].short}; {estimated}, without the recording {told.full}"


def _longest(shares: Sequence[TimeShare]) -> list[TimeShare]:
    """The longest rows, at least one, and no further one that is small."""
    ordered = sorted(shares, key=lambda share: -share.fraction)[:_MOST_ROWS]
    return [share for at, share in enumerate(ordered) if not at or share.fraction >= _LEAST_SHARE]


def _fraction(shares: Sequence[TimeShare]) -> float:
    return sum(share.fraction for share in shares)
