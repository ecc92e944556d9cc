"""Which calls of PyTorch a watch looks at, once it has looked at many.

A look takes 10 to 60 µs of CPU time, passing a call by 5. So of a step with many calls only the first are all looked
at, until that has taken half of the budget. After that each call site, a place in the program with a function that
it calls there, is known by its first looks: if none of them repeated an earlier call, the watch only looks at every
sixteenth call there, until one of these does. What is computed again in a loop, or in each of many layers, repeats at
its site from the second call on and stays watched.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

WHOLE_NS = 300_000_000
"""A step in which the watch takes less is looked at as a whole: 2,000 to 15,000 calls."""
SITE_LOOKS = 32
"""Looks at a site before any call is passed by. Loops over layers are shorter."""
EVERY = 16
PASSED_NS = 5_000
"""What passing a call by takes: the mode and the look for its site (measured)."""
_OWN = "torch"
_MOST_FRAMES = 24
"""From a function of PyTorch to the program: a model's containers call their layers through four frames each."""
_WRITING = ("__setitem__", "__delitem__")


class CallSampling:
    """`passes_by` says whether to look at a call; `note` says whether one that was looked at repeated another. While
    it ``is_on``, calls may be passed by."""

    def __init__(self) -> None:
        self.is_on = False
        self._sites: dict[tuple[object, int, int], list[int]] = {}
        self._current: list[int] | None = None

    def look(self, spent_ns: int) -> None:
        """The watch took so much of this step."""
        self.is_on = spent_ns >= WHOLE_NS

    def passes_by(self, function: Any, name: str, named: dict[str, Any], frame: FrameType) -> bool:
        """Calls that write to a tensor are always looked at, as later calls may read it."""
        self._current = None
        if not self.is_on or writes(name, named):
            return False
        site = (function, *_place_of(frame))
        seen = self._sites.setdefault(site, [0, 0])
        seen[0] += 1
        if seen[0] > SITE_LOOKS and not seen[1] and seen[0] % EVERY:
            return True
        self._current = seen
        return False

    def note(self, is_again: bool) -> None:
        if self._current is not None:
            self._current[1] += is_again


def writes(name: str, named: dict[str, Any]) -> bool:
    """Whether a function of this name writes to a tensor that it is given."""
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name.startswith("__i") or name in _WRITING or named.get("out") is not None


def _place_of(frame: FrameType) -> tuple[int, int]:
    """The innermost place outside of PyTorch: its code object and the position in it."""
    place: FrameType | None = frame
    for _ in range(_MOST_FRAMES):
        outer = place.f_back if place is not None else None
        if place is None or outer is None or str(place.f_globals.get("__name__")).partition(".")[0] != _OWN:
            break
        place = outer
    found = place or frame
    return id(found.f_code), found.f_lasti
