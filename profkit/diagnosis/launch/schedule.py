"""Working through many places, such as recordings: what becomes of each, and how a process takes turns with others."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from profkit.core.errors import ProfkitError
from profkit.core.failures import describe_failure
from profkit.core.forks import PROCESSES, Channel

NUMBER_BYTES = 4
"""Of a place's number. A pipe passes so few bytes whole, so two readers never share one."""
Value = TypeVar("Value")


class Done(Struct, Generic[Value], frozen=True):
    """The result for the place with this number, or the cause why there is none."""

    number: int
    value: Value | None = None
    cause: str = ""


def do_at(work: Callable[[str], Value], number: int, place: str) -> Done[Value]:
    """Do the work at one place. If it fails, that costs this place alone."""
    try:
        return Done(number, work(place))
    except ProfkitError as error:
        return Done(number, cause=str(error))
    except Exception as error:  # a flaw of profkit's that one file shows must not cost the user all others
        return Done(number, cause=f"{place}: {describe_failure(error)}")


def take_turns(channel: Channel, numbers: int, work: Callable[[str], Value], places: Sequence[str]) -> None:
    """In a process of its own: take the next number whenever this process is free, report it, then the result.

    ``numbers`` is the reading end of a pipe with the places' numbers.
    """
    os.environ[PROCESSES] = "1"  # the others have the other processors
    gc.freeze()
    while taken := os.read(numbers, NUMBER_BYTES):
        number = int.from_bytes(taken, "little")
        channel.send(number)
        channel.send(do_at(work, number, places[number]))
        gc.collect()  # the command line switches it off, and trace after trace comes here
