"""Make a large memory snapshot of a small one by repeating the history of its first device that has one.

    python tests/benchmarks/repeat_snapshot.py SOURCE TARGET MEGABYTES [--without-stacks]

Each repetition has later times, other addresses and lists of frames of its own, as PyTorch would have recorded it;
frames and texts are shared. SOURCE must be yours: it is unpickled.
"""

from __future__ import annotations

import argparse
import pickle
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_BATCH = 1000
"""Items in one part of a list, as Python's pickler writes them."""
_ADDRESS_STEP = 1 << 21


@dataclass(frozen=True)
class Writer:
    """Opcodes of protocol 4. What is written twice is a reference the second time."""

    out: bytearray = field(default_factory=bytearray)
    memo: dict[Any, int] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    """Where there are addresses, times, and references to what a repetition writes anew."""
    shared: list[int] = field(default_factory=list)
    """How many values there were before the repetitions."""

    def put(self, key: Any) -> None:
        self.memo[key] = len(self.memo)
        self.out.append(0x94)

    def write(self, value: Any) -> None:
        key = value if isinstance(value, str) else id(value) if isinstance(value, (list, dict)) else None
        if key in self.memo:
            number = self.memo[key]
            of_repetition = bool(self.shared) and number >= self.shared[0]
            self.own.extend([len(self.out) + 1] * of_repetition)
            short = number < 256 and not of_repetition
            self.out.extend(bytes([ord("h"), number]) if short else b"j" + struct.pack("<I", number))
        elif isinstance(value, dict):
            self._write_dict(value)
        elif isinstance(value, tuple):
            for item in value:
                self.write(item)
            self.out.extend(b"\x86")  # TUPLE2: the name of a pool
        elif isinstance(value, list):
            self.out.extend(b"]")
            self.put(id(value))
            self.write_items(value)
        elif isinstance(value, str):
            encoded = value.encode()
            short = len(encoded) < 256
            self.out.extend(bytes([0x8C, len(encoded)]) if short else b"X" + struct.pack("<I", len(encoded)))
            self.out.extend(encoded)
            self.put(value)
        else:
            self.out.extend(pickle.dumps(value, 2)[2:-1])

    def write_items(self, values: list[Any]) -> None:
        for start in range(0, len(values), _BATCH):
            self.out.extend(b"(")
            for value in values[start : start + _BATCH]:
                self.write(value)
            self.out.extend(b"e")

    def _write_dict(self, value: dict[str, Any]) -> None:
        self.out.extend(b"}")
        self.put(id(value))
        self.out.extend(b"(")
        for key, item in value.items():
            self.write(key)
            places = {"addr": self.addresses, "time_us": self.times}.get(key)
            if places is None or item < 2**31:
                self.write(item)
            else:
                places.append(len(self.out) + 2)
                self.out.extend(b"\x8a\x08" + struct.pack("<q", item))
        self.out.extend(b"u")


def repeat(source: Path, target: Path, size_bytes: int, stacks: bool) -> int:
    """Write TARGET; how many entries it has."""
    document = pickle.loads(source.read_bytes())
    entries = next(trace for trace in document["device_traces"] if trace)
    if not stacks:
        entries = [{key: value for key, value in entry.items() if key != "frames"} for entry in entries]
    frames = {id(frame): frame for entry in entries for frame in entry.get("frames", ())}.values()
    texts = {text for entry in entries for pair in entry.items() for text in pair if isinstance(text, str)}
    writer = Writer()
    writer.out.extend(b"\x80\x04}(")
    for value in ("segments", document["segments"], "shared", [*frames, *sorted(texts)], "device_traces"):
        writer.write(value)
    writer.out.extend(b"](]")
    with target.open("wb") as out:
        out.write(writer.out)
        writer.out.clear()
        writer.shared.append(len(writer.memo))
        writer.write_items(entries)
        rounds = max(1, size_bytes // len(writer.out))
        span_us = max((entry.get("time_us", 0) for entry in entries), default=0) + 1000
        span_us -= min((entry.get("time_us", 0) for entry in entries), default=0)
        for _ in range(rounds):
            out.write(writer.out)
            _shift(writer.out, "<i8", writer.addresses, _ADDRESS_STEP)
            _shift(writer.out, "<i8", writer.times, span_us)
            _shift(writer.out, "<u4", writer.own, len(writer.memo) - writer.shared[0])
        out.write(b"eu.")
    return rounds * len(entries)


def _shift(content: bytearray, type_: str, places: list[int], step: int) -> None:
    """Add to the numbers at those places."""
    size_bytes = np.dtype(type_).itemsize
    numbers = np.ndarray((len(content) - size_bytes + 1,), type_, content, 0, (1,))
    numbers[places] += np.array(step, type_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("--without-stacks", action="store_true")
    options = parser.parse_args()
    entries = repeat(options.source, options.target, int(options.megabytes * 1e6), not options.without_stacks)
    print(f"{entries:,} entries, {options.target.stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
