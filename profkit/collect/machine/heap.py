"""The heap of the C library: how much of it is in use, and giving back what lies free.

PyTorch aligns results on a CPU to 64 bytes. For these glibc (seen with 2.36) looks for a place that is larger by the
alignment, and leaves the rest to others. So if something small and lasting lies beside a freed place, that place is too
small for the next result of the same size, and the heap grows although most of it is free. Without aligned results or
lasting neighbours it does not grow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_GLIBC = "libc.so.6"
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    """For all arenas: ``uordblks`` bytes are in use, and also ``hblkhd`` bytes in blocks that were mapped
    separately."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def in_use_bytes() -> int | None:
    """The bytes that the program, its libraries and a recording have allocated and not freed. Takes 0.2 µs for each
    free place of the heap. Needs glibc 2.33 or later with no other allocator in front of it."""
    ask = _mallinfo2()
    if ask is None:
        return None
    info = ask()
    return int(info.uordblks + info.hblkhd)


def give_back() -> None:
    """Return the heap's free memory to the system: 60 ms per GB. Only glibc can do so."""
    with suppress(OSError, AttributeError, TypeError):  # Windows has no library of that name
        ctypes.CDLL(None).malloc_trim(0)


@cache
def _mallinfo2() -> Callable[[], _Mallinfo2] | None:
    with suppress(OSError, AttributeError, TypeError):
        glibc, process = ctypes.CDLL(_GLIBC), ctypes.CDLL(None)
        if _address(glibc) == _address(process):  # unless another allocator is preloaded, such as jemalloc
            ask = glibc.mallinfo2
            ask.restype = _Mallinfo2
            return ask
    return None


def _address(library: ctypes.CDLL) -> int | None:
    """The address of its ``malloc``."""
    return ctypes.cast(library.malloc, ctypes.c_void_p).value
