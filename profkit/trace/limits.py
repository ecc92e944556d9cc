"""How much memory the diagnosis of one trace may take.

``read_facts`` (``diagnosis/pipeline.py``) gives the limit to every reader. Kineto's hands it to the ``ColumnBuilder``,
which counts what it holds and what the facts will take. Beyond the limit ``time_cutoff.py`` drops later events, and a
sentence about what is left joins the trace's ``health``, which the report shows under "The recording".
"""

from __future__ import annotations

import os
import re

from profkit.core.errors import UsageError
from profkit.core.units import format_bytes

MEMORY_LIMIT = "PROFKIT_MEMORY_LIMIT"
"""The environment variable that sets another limit, such as ``500 MB`` or ``8GB``."""
DEFAULT_LIMIT_BYTES = 2 * 10**9

EMPTY_BYTES = 100 * 10**6
"""The part that does not grow with the trace: Python, NumPy, the rules, the report. 60 MB were measured."""
EVENT_BYTES = 260
"""What one event takes at the peak, with all derived facts. Traces of 1 GB without lines took 130 to 170 bytes. Our
own recordings have lines, and the second process holds some memory of its own."""
_SMALLEST_BYTES = 150 * 10**6
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", re.IGNORECASE)


def most_events(limit_bytes: int) -> int:
    """How many events a trace may have if its diagnosis is to keep to the limit."""
    return max(0, limit_bytes - EMPTY_BYTES) // EVENT_BYTES


def describe_partial(kept: str, limit_bytes: int) -> str:
    """The sentence that a trace was cut short, and why. ``kept`` says what is left of it."""
    cause = f"the trace needs more than {format_bytes(limit_bytes)} of memory ({MEMORY_LIMIT} sets another limit)"
    return f"only {kept} were kept, and all figures are of these alone: {cause}"


def memory_limit() -> int:
    """The limit in bytes. Raises `UsageError` if the environment sets one that is unreadable or too small."""
    text = os.environ.get(MEMORY_LIMIT, "").strip()
    if not text:
        return DEFAULT_LIMIT_BYTES
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"{MEMORY_LIMIT}={text}: give a size such as 500MB or 8GB")
    limit = int(float(match[1]) * _UNITS[match[2].lower()])
    if limit < _SMALLEST_BYTES:
        raise UsageError(f"{MEMORY_LIMIT}={text}: at least {_SMALLEST_BYTES // 10**6} MB are needed")
    return limit
