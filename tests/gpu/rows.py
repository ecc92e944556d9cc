"""One result of a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Figure = str | float | int | bool | None
DONE = "done"
COULD_NOT, FAILED = "could not: ", "failed: "


class PartFailed(Exception):
    """Something that a part needs failed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """``outcome`` is `DONE`, a verdict, or begins with ``could not:`` or ``failed:``. A later row of the same part and
    name replaces an earlier one. ``recordings`` are files and folders to bring back, by their place in the archive;
    once packed they are deleted."""

    part: str
    name: str
    outcome: str = DONE
    figures: Mapping[str, Figure] = field(default_factory=dict)
    recordings: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """``share`` is its part of all the time before the others had their turn. ``rows`` is given the machine and a
    function that tells how many seconds are left of the whole run."""

    name: str
    about: str
    share: float
    rows: Callable[..., Iterator[Row]]
