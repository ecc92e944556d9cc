"""The heap of the C library: how much of it is in use, and giving back what lies free.

PyTorch has a CPU's results aligned to 64 bytes. For these glibc (seen with 2.36) looks for a place that is larger by
the alignment, and leaves what is over to others. So a place that is freed is too small for the next result of the same
size if something small that stays lies beside it: the heap grows though most of it is free. Without aligned results, or
with nothing that stays, it does not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_GLIBC = "libc.so.6"
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    """Of all arenas: ``uordblks`` bytes are in use; so are ``hblkhd``, each block of which the system mapped by
    itself."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def in_use_bytes() -> int | None:
    """What the program, its libraries and a recording have asked for and not freed. It takes 0.2 µs for each free place
    of the heap. Only told by glibc, from 2.33 on, and where no other allocator stands before it."""
    ask = _mallinfo2()
    if ask is None:
        return None
    told = ask()
    return int(told.uordblks + told.hblkhd)


def give_back() -> None:
    """Return to the system what the heap keeps for later: 60 ms for each GB. Only glibc can do so."""
    with suppress(OSError, AttributeError, TypeError):  # Windows has no library of that name
        ctypes.CDLL(None).malloc_trim(0)


@cache
def _mallinfo2() -> Callable[[], _Mallinfo2] | None:
    with suppress(OSError, AttributeError, TypeError):
        glibc, process = ctypes.CDLL(_GLIBC), ctypes.CDLL(None)
        if _address(glibc) == _address(process):  # else another allocator is preloaded, such as jemalloc
            ask = glibc.mallinfo2
            ask.restype = _Mallinfo2
            return ask
    return None


def _address(library: ctypes.CDLL) -> int | None:
    """Of its ``malloc``."""
    return ctypes.cast(library.malloc, ctypes.c_void_p).value
