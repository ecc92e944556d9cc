"""Why a change is not offered."""

from __future__ import annotations


class Refused(Exception):
    """The text does not prove that a change fits. The message is the reason, as the user reads it."""


class AlreadyMade(Refused):
    """The text has what the change would make of it."""


class AltersNumbers(Refused):
    """The change fits, but the program then computes other numbers: only who asked for such changes gets ``after``."""

    def __init__(self, reason: str, after: bytes) -> None:
        super().__init__(f"{reason}; --unsafe tries it")
        self.reason, self.after = reason, after

    def with_text(self, after: bytes) -> AltersNumbers:
        """The same of another text."""
        return AltersNumbers(self.reason, after)
