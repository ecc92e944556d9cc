"""Experiments that price a fix by running it, and the edit that makes of what they measured."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from profkit.experiment import Experiment
from profkit.savings.edits import Edit


class Trial(Struct, frozen=True):
    """An experiment that can take the place of a rule's model, and the edit for what it finds: ``edit_of`` takes the
    share of the time that is left with the fix."""

    experiment: Experiment
    edit_of: Callable[[float], Edit]
