"""What a look at the main thread's stack shows of the program."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType


@dataclass(slots=True, eq=False)
class Function:
    """A function of the program. It is known by its identity: to hash a code object, Python up to 3.11 hashes all of
    its constants, other functions among them, each time: 0.1 ms for the module `torch`."""

    code: CodeType


Line = tuple[Function, int]
"""A line of the program on the stack."""
