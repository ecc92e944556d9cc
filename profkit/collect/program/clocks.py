"""The clocks of `time` as they were when the process started.

A program may put others in their place that stand still, run backwards or count their calls, as tests do. It would see
profkit's calls, and profkit would measure nothing. So profkit's code in the program takes ``time`` from here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

__all__ = ["time"]

if TYPE_CHECKING:
    import time
else:
    import time as _time

    time = SimpleNamespace(**vars(_time))  # freezegun looks for its functions in modules, not in their objects
