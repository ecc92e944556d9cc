"""What a recording is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded: the command as the user gave it, the target's name, and of a scenario its variant.

    ``roots`` are directories whose code is the user's wherever they lie; ``generators`` run the user's code though
    they are not on the stack between steps.
    """

    command: tuple[str, ...] = ()
    target: str | None = None
    variant: str | None = None
    roots: tuple[str, ...] = ()
    generators: Callable[[], Iterable[Any]] = tuple
