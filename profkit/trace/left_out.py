"""Events that are left out because they have no usable time: which are a loss, and the sentence about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from profkit.core.units import format_count
from profkit.trace.events import DEVICE_WORK, Bools, Category, Int64s
from profkit.trace.kinds import category_of

LEFT_OUT = "left out, because unreadable or without a usable time"
_IMPLIED = ("overhead", "Trace", "__metadata", "")
"""Categories that say nothing about the program: the profiler's own work and the bounds of the recording."""
_WORDS = {
    Category.OPERATOR: ("operator", "operators"),
    Category.ANNOTATION: ("range", "ranges"),
    Category.PYTHON: ("Python frame", "Python frames"),
    Category.RUNTIME: ("runtime call", "runtime calls"),
    Category.KERNEL: ("kernel", "kernels"),
    Category.MEMCPY: ("copy", "copies"),
    Category.MEMSET: ("memory fill", "memory fills"),
    Category.DEVICE_ANNOTATION: ("range of the device", "ranges of the device"),
}
_OTHERS = "other", "others"
_OF_THE_DEVICE = (*DEVICE_WORK, Category.RUNTIME)
_CALLERS = (Category.OPERATOR, Category.ANNOTATION, Category.LINE_MARK)


def find_clockless(
    category: np.ndarray[tuple[int], np.dtype[np.uint8]],
    start_ns: Int64s,
    duration_ns: Int64s,
    external: Int64s,
    is_step: Bools,
    lost: Bools,
) -> Bools:
    """The lost events that are no loss: the device's work in the located step, from which no figure comes.

    profkit exports that step's recording once the next step is over. By then Kineto sets the time of its device and
    runtime events to zero, and changes nothing else. The operators that they belong to still have a time, which
    identifies them: it lies between the first line mark and the step after the last one, or the end of the last.
    """
    marks = ~lost & (category == Category.LINE_MARK)
    wanted = lost & (start_ns == 0) & (duration_ns == 0) & np.isin(category, _OF_THE_DEVICE)
    if not marks.any() or not wanted.any():
        return np.zeros(len(lost), dtype=bool)
    begin_ns, end_ns = start_ns[marks].min(), (start_ns[marks] + duration_ns[marks]).max()
    later_ns = start_ns[is_step & ~lost & (start_ns >= end_ns)]
    end_ns = later_ns.min() if later_ns.size else end_ns
    callers = ~lost & np.isin(category, _CALLERS) & (external > 0)
    callers &= (start_ns >= begin_ns) & (start_ns < end_ns)
    by_the_profiler = (external <= 0) & (category == Category.RUNTIME)  # it waits for the device as it stops
    found: Bools = wanted & (by_the_profiler | np.isin(external, external[callers]))
    return found


def describe_left_out(categories: Mapping[str, int], unreadable: int) -> Iterator[str]:
    """One sentence if anything is lost: how many events of each kind, and what follows from that."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, count in categories.items():
        if name not in _IMPLIED and count:
            counts[_WORDS.get(category_of(name), _OTHERS)] += count
    total = sum(counts.values()) + unreadable
    if not total:
        return
    if unreadable:
        counts[_OTHERS] += unreadable
    named = sorted(counts.items(), key=lambda item: (item[0] == _OTHERS, -item[1], item[0]))
    kinds = ", ".join(f"{count:,} {words[count != 1]}" for words, count in named)
    kinds = "" if named == [(_OTHERS, total)] else f" ({kinds})"
    of_device = any(counts[_WORDS[category]] for category in DEVICE_WORK)
    meaning = ", so that the GPU's work is understated" if of_device else ""
    yield f"{LEFT_OUT}: {format_count(total, 'event')}{kinds}{meaning}"
