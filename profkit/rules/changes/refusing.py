"""Why a change is not offered."""

from __future__ import annotations


class Refused(Exception):
    """The text does not prove that a change fits. The message is the reason, as the user reads it."""
