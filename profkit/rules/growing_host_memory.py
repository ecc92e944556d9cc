"""The process takes more and more memory of the machine while it trains.

What it detects
The process's resident memory between the first step, or what was recorded, and the last step, in eight blocks. Its
lowest values must rise from block to block, by 128 MB and a fifth in all. In the second half and in the last quarter
they must rise nearly as fast as before. A cache that fills, or a first epoch that loads data, levels off and is not
reported. Nor is growth in a few jumps: allocators take memory in large pieces and keep what is freed. So a few
evaluations or larger batches look like this until the pieces suffice. If names of the program were seen to hold more
tensors or autograd graphs from step to step, `growing-live-tensors` and `retained-graph` tell of that instead.
Small nodes that stay keep freed memory around them from going back to the system, so the process grows faster
than they do.

Why is this bad?
What grows with the number of steps ends in a process that is killed, hours later, with no traceback.

Example
    for batch in loader:
        loss = train_step(batch)
        history.append((batch, loss.item()))  # every batch is kept

Use instead
    for batch in loader:
        loss = train_step(batch)
        history.append(loss.item())

How the saving is estimated
Not at all: memory is no time. The finding states how fast it grows. Some growth is meant, as that of a replay buffer
that fills over days, so this is an opportunity. Its severity is high if the machine would be full within six hours, and
within ten times as long as the growth was seen.

Sources: Kendall's rank correlation, M. G. Kendall, A new measure of rank correlation, Biometrika 1938; the median of
all pairs' slopes, P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 1968.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns.retention.growing_graphs import growing_graphs
from profkit.patterns.retention.holding import growing_names
from profkit.patterns.whole_run.curves import early_ns, recorded_within
from profkit.patterns.whole_run.run_parts import steps_within
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_time,
    rule,
)
from profkit.trace import Float64s

_BLOCKS = 8
"""Chance alone orders the lowest values of eight blocks as strictly as `_LEAST_ORDER` once in a thousand times."""
_LEAST_ORDER = 0.85
"""Kendall's tau: at most two pairs of 28 in the wrong order."""
_LEAST_SAMPLES = 40
"""Five for each block."""
_MOST_SAMPLES = 1200
"""Twice as many as a watch takes: a file from anybody may hold any number, and all pairs of them are compared."""
_LEAST_BYTES, _LEAST_SHARE = 128 << 20, 0.2
"""Allocators keep freed memory, and libraries load what they need at first use: less may be that."""
_GOES_ON = 0.75
"""Of the rate of the first half, in the second and in the last quarter: what levels off is slower. What loses a
quarter of its rate from one half to the other has reached more than two fifths of its level, if it nears one
exponentially."""
_MOST_OF_GROWTH, _LEAST_RISES = 0.8, 8
"""So much of the growth comes in so many rises at least, or it is that of a few allocations."""
_SOON_NS = 6 * 3600 * 1_000_000_000
"""A process that would fill the machine within so long may end in the night."""
_FORESEEN = 10
"""Times as long as growth was seen, for high severity: half a minute says nothing about an hour."""


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def growing_host_memory(facts: Facts) -> Suspicions:
    """One finding for the process."""
    within = steps_within(facts)
    if within is None:
        raise CannotLook("no step was seen, so growth in the steps is not known")
    known = dict(facts.account.memory[:_MOST_SAMPLES])  # at different times, else there is no slope
    recorded = recorded_within(facts)  # recording makes steps longer, and so growth slower, and takes memory itself
    begin_ns = within[0] if recorded is None else max(within[0], recorded[1] - early_ns(facts.account))
    samples = sorted((at, size) for at, size in known.items() if begin_ns <= at <= within[1])
    if len(samples) < _LEAST_SAMPLES:
        raise CannotLook(
            f"the memory was looked at fewer than {_LEAST_SAMPLES} times between the first step, or the recording, and "
            "the last step"
        )
    times_ns, sizes = np.array(samples, dtype=np.float64).T
    lowest = np.array([block.min() for block in np.array_split(sizes, _BLOCKS)])
    grown, kept = lowest[-1] - lowest[0], _kept(sizes)
    if grown < max(_LEAST_BYTES, _LEAST_SHARE * lowest[0]) or _order(lowest) < _LEAST_ORDER:
        return
    if _rises(kept) < _LEAST_RISES or not _goes_on(times_ns, kept):
        return
    if facts.has_trace and (growing_names(facts) or growing_graphs(facts)):
        return
    rate = _slope(times_ns, sizes)
    room = max(0, facts.run.host.memory_bytes - int(sizes[-1])) if facts.run.host is not None else 0
    full_ns = room / rate if room and rate > 0 else None
    soon_ns = min(_SOON_NS, _FORESEEN * (times_ns[-1] - times_ns[0]))
    full = f" At this rate the machine's memory is full in {format_time(full_ns)}." if full_ns is not None else ""
    yield Suspicion(
        message=f"The process's memory grows by {format_bytes(int(grown))} between the first step and the last, "
        f"{format_bytes(int(rate * 3600e9))} an hour, and does not level off.{full}",
        fix="Look for lists, dictionaries and caches that each step adds to, also in the dataset and in hooks. Keep "
        "numbers (`.item()`) instead of tensors or batches, and bound caches. `profkit diagnose` names what holds "
        "tensors.",
        severity=Severity.HIGH if full_ns is not None and full_ns < soon_ns else Severity.MEDIUM,
        count=1,
        confidence=0.7,
        evidence={"grown_bytes": int(grown), "bytes_per_hour": int(rate * 3600e9), "looks": len(samples)},
    )


def _order(values: Float64s) -> float:
    """Kendall's tau between the values and their places: 1 if each is larger than all before it."""
    signs = np.sign(values[None, :] - values[:, None])
    return float(np.triu(signs, 1).sum() / (len(values) * (len(values) - 1) / 2))


def _kept(sizes: Float64s) -> Float64s:
    """At each look, the bytes that are not given back later."""
    kept: Float64s = np.minimum.accumulate(sizes[::-1])[::-1]
    return kept


def _rises(kept: Float64s) -> int:
    """In how many rises most of the growth comes."""
    largest_first = np.sort(np.diff(kept))[::-1].cumsum()
    return int(np.searchsorted(largest_first, _MOST_OF_GROWTH * largest_first[-1])) + 1


def _goes_on(times: Float64s, kept: Float64s) -> bool:
    """Whether the second half, and the last quarter, grow nearly as fast as the first half and as all of it."""
    half, quarter = len(times) // 2, len(times) // 4
    later = min(_slope(times[-part:], kept[-part:]) for part in (half, quarter))
    average = float((kept[-1] - kept[0]) / (times[-1] - times[0]))
    return later >= _GOES_ON * max(_slope(times[:half], kept[:half]), average)


def _slope(times: Float64s, values: Float64s) -> float:
    """The median of the slopes of all pairs, which a few odd values do not move."""
    first, second = np.triu_indices(len(times), 1)
    return float(np.median((values[second] - values[first]) / (times[second] - times[first])))
