"""Generators of random numbers that the program makes without a seed, as `numpy.random.default_rng()` does.

Their numbers come from the operating system, other ones in each run, and no global state shows it. NumPy takes them at
one place, Python in `random.Random.seed`. With a seed both get numbers that are the same in each run.
"""

from __future__ import annotations

import linecache
import os
import random
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

_SEEDED_LATER = re.compile(r"\bRandomState\((?!\s*(None\s*)?\))")
"""``RandomState(3)`` takes numbers from the system too, before it is seeded with what it was given."""


class Entropy:
    """Where the program's own files asked for other numbers in each run. With a ``seed`` these come from that."""

    def __init__(self, folder: str, seed: int | None) -> None:
        self._folder = os.path.join(os.path.realpath(folder), "")
        self._given = None if seed is None else random.Random(seed)  # noqa: S311  # of a program
        self.places: list[str] = []

    def watch(self) -> None:
        """From now on. Global generators have a state of their own to compare, and are left as they are."""
        if "numpy" in sys.modules:
            import numpy.random.bit_generator as generator

            generator.randbits = self._for_numpy(generator.randbits)  # type: ignore[attr-defined]
        seed: Any = random.Random.seed
        random.Random.seed = self._for_python(seed)  # type: ignore[method-assign]

    def _for_numpy(self, randbits: Any) -> Any:
        def asked(bits: int) -> Any:
            frame = sys._getframe(1)
            if not _SEEDED_LATER.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
                self._note(self._caller(frame, every=True))
            return randbits(bits) if self._given is None else self._given.getrandbits(bits)

        return asked

    def _for_python(self, seed: Any) -> Any:
        def asked(generator: random.Random, a: Any = None, *given: Any, **named: Any) -> None:
            place = self._caller(sys._getframe(1), every=False) if a is None and generator is not self._given else ""
            self._note(place)
            number = self._given.getrandbits(64) if place and self._given is not None else a
            seed(generator, number, *given, **named)

        return asked

    def _note(self, place: str) -> None:
        if place and self._given is None and place not in self.places:
            self.places.append(place)

    def _caller(self, frame: FrameType | None, every: bool) -> str:
        """The line of the program that asked, through ``every`` library or only by itself: empty if none did. The
        standard library names its temporary files with a generator of its own."""
        while frame is not None:
            file = os.path.realpath(frame.f_code.co_filename)
            if file.startswith(self._folder):
                return f"{Path(file).relative_to(self._folder).as_posix()}:{frame.f_lineno}"
            if not (every or file == random.__file__):
                return ""
            frame = frame.f_back
        return ""
