"""Calls of the driver that a program makes in its first steps: it loads code and gets memory."""

from __future__ import annotations

import re

from profkit.trace.events import Bools, Category, Trace

_ALLOCATES = re.compile(
    r"(?:cuda|hip|cu)(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)"
    r"|Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address))"
)
"""Calls that get memory from the driver or give it back, including those of PyTorch's expandable segments. Many of them
wait for the device."""
_FREES = re.compile(r"(?:cuda|hip|cu)(?:Free|HostFree|HostUnregister|Mem(?:Free|Release|Unmap|AddressFree))")
_LOADS_CODE = re.compile(r"(?:cu|hip)(?:ModuleLoad|LibraryLoad)")
"""Code is loaded onto the device when a kernel is first launched."""


def allocating(trace: Trace) -> Bools:
    """Calls that get memory from the driver or give it back."""
    return _calls(trace, _ALLOCATES)


def freeing(trace: Trace) -> Bools:
    """Those of them that give memory back."""
    return _calls(trace, _FREES)


def loading_code(trace: Trace) -> Bools:
    """Calls that load code onto the device."""
    return _calls(trace, _LOADS_CODE)


def _calls(trace: Trace, pattern: re.Pattern[str]) -> Bools:
    named = trace.where_name(lambda name: pattern.match(name) is not None)
    calls: Bools = named & (trace.events.category == Category.RUNTIME)
    return calls
