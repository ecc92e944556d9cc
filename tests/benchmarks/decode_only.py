"""The floor: unpack a gzip trace made by repeat_trace.py, decode its events into typed structs, throw them away.

python tests/benchmarks/decode_only.py TRACE
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import msgspec
from isal import igzip_lib

from profkit.trace.kineto.schema import Event

_SEPARATOR = b"},\n  {"


def decode(path: Path) -> int:
    """How many events the trace holds."""
    decoder = msgspec.json.Decoder(list[Event])
    member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    held, count, begun = b"", 0, False
    with path.open("rb") as file:
        while not member.eof:
            held += member.decompress(file.read(32 << 10) if member.needs_input else b"", 512 << 10)
            if not begun:
                held = held[held.index(b"{", held.index(b'"traceEvents"')) :]
                begun = True
            cut = held.rfind(_SEPARATOR) + 1
            if cut:
                count += len(decoder.decode(b"[" + held[:cut] + b"]"))
                held = held[cut + len(_SEPARATOR) - 2 :]
    return count + len(decoder.decode(b"[" + held[: held.rindex(b"]")] + b"]"))


if __name__ == "__main__":
    gc.disable()
    print(decode(Path(sys.argv[1])))
