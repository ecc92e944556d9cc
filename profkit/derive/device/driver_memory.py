"""Calls that get memory from a GPU's driver or give it back: they take time, and often wait for the device.

PyTorch's allocator makes them (`CUDACachingAllocator.cpp`, with and without expandable segments) and keeps what it got,
so most steps need none. Calls to the driver's own pool (`cudaFreeAsync`) do not count.
"""

from __future__ import annotations

import re

from profkit.trace.events import Bools, Category, Trace

_FREES = re.compile(r"(?:cuda|hip)Free|(?:cu|hip)Mem(?:Free|Unmap|Release|AddressFree)(?:_v2)?")
_GETS = re.compile(
    r"(?:cuda|hip)Malloc|hipExtMallocWithFlags|(?:cu|hip)Mem(?:Alloc|Create|Map|SetAccess|AddressReserve)(?:_v2)?"
)
_ANY = re.compile(
    r"(?:cuda|hip|cu)(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)"
    r"|Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address))"
)


def freeing(trace: Trace) -> Bools:
    """Calls that give the device's memory back."""
    return _runtime(trace) & trace.where_name(lambda name: _FREES.fullmatch(name) is not None)


def getting(trace: Trace) -> Bools:
    """Calls that ask for the device's memory."""
    return _runtime(trace) & trace.where_name(lambda name: _GETS.fullmatch(name) is not None)


def allocating(trace: Trace) -> Bools:
    """Both, and the same calls for the host's pinned memory."""
    return _runtime(trace) & trace.where_name(lambda name: _ANY.match(name) is not None)


def _runtime(trace: Trace) -> Bools:
    calls: Bools = trace.events.category == Category.RUNTIME
    return calls
