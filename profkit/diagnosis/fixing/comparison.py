"""What comparing two versions of a program said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """``differs`` says what the change altered, ``unknown`` why nothing can be said; both are empty if the results are
    the same. ``compared`` and ``left_out`` name what was looked at and what could not be."""

    differs: str = ""
    unknown: str = ""
    compared: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return not self.differs and not self.unknown
