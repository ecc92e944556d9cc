"""What a process does that works through places beside others: it takes the next number whenever it is free."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from profkit.forks import PROCESSES, Channel
from profkit.gathering.outcome import do_at

NUMBER_BYTES = 4
Value = TypeVar("Value")


def take_turns(channel: Channel, numbers: int, work: Callable[[str], Value], places: Sequence[str]) -> None:
    """In a process of its own: say which place is begun, then what became of it. ``numbers`` is the reading end of a
    pipe with the places' numbers."""
    os.environ[PROCESSES] = "1"  # the others have the other processors
    gc.freeze()
    while taken := os.read(numbers, NUMBER_BYTES):
        number = int.from_bytes(taken, "little")
        channel.send(number)
        channel.send(do_at(work, number, places[number]))
        gc.collect()  # the command line has switched it off, and here comes trace after trace
