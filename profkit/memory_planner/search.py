"""The largest batch whose plan fits."""

from __future__ import annotations

from collections.abc import Callable

from profkit.memory_planner.plan import Usage

_LARGEST = 1 << 20
"""Nobody trains with a batch of more than a million samples on one device."""


def find_largest(plan: Callable[[int], Usage], batch: int, usage: Usage, room_bytes: int) -> tuple[int, Usage | None]:
    """The largest batch that fits into ``room_bytes``, and its usage; 0 if not even one sample does.

    Memory grows with the batch, from some size on nearly in proportion, so guesses lie on lines through known batches.
    The answer is verified: it fits, and one more sample does not.
    """
    known = {batch: usage}
    low, high = 0, _LARGEST + 1
    halved, guess = True, batch
    while True:
        if guess not in known:
            known[guess] = plan(guess)
        width = high - low
        low, high = (guess, high) if known[guess].needed_bytes() <= room_bytes else (low, guess)
        if high - low <= 1:
            return low, known.get(low)
        halved = not halved or high - low <= width // 2
        needed = {samples: one.needed_bytes() for samples, one in known.items()}
        guess = (
            _between(low, high, needed, room_bytes, halved)
            if low and high in known
            else (_beyond(low or high, needed, room_bytes))
        )
        guess = min(max(guess, low + 1), high - 1)


def _between(low: int, high: int, needed: dict[int, int], room_bytes: int, halved: bool) -> int:
    """Where the line between a batch that fits and one that does not crosses the limit. Such guesses advance slowly
    along a bend, so after one that has not halved the range comes the middle."""
    if not halved:
        return (low + high) // 2
    return low + (room_bytes - needed[low]) * (high - low) // (needed[high] - needed[low])


def _beyond(end: int, needed: dict[int, int], room_bytes: int) -> int:
    """If all known batches fit, or none: extrapolate the line through the last two, by at most a factor of eight."""
    fits = needed[end] <= room_bytes
    others = sorted(needed, key=lambda samples: abs(samples - end))
    step = end * 2 if fits else end // 2
    if len(others) > 1:
        per_sample = (needed[end] - needed[others[1]]) / (end - others[1])
        if per_sample > 0:
            step = end + int((room_bytes - needed[end]) // per_sample)
    return min(step, end * 8) if fits else max(step, end // 8)
