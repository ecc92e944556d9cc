"""Trials: experiments that price a fix by running it, and the edit that follows from what they measure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from profkit.run.experiment import Experiment
from profkit.savings.edits import Edit


class Trial(Struct, frozen=True):
    """An experiment that can replace a rule's model. ``edit_of`` makes the edit for its result: the share of the time
    that the fix leaves."""

    experiment: Experiment
    edit_of: Callable[[float], Edit]
