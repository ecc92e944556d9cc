"""A light recording: only the collectives and steps of a trace.

PyTorch's profiler records every operator or none. So everything except memory is recorded, and the file leaves out the
rest. It keeps the ranges (steps, the marks of the optimizer, the DataLoader and the process group's backend, profkit's
own marks), the operators of ``torch.distributed``, NCCL's kernels, and the calls that launched them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Raw, Struct

from profkit.collect.sessions.exporting import span_of_events

_RANGES = ("user_annotation", "gpu_user_annotation")
_OPERATORS = ("c10d::", "record_param_comms")
_KERNELS = "nccl"
"""In the name of every kernel of NCCL and RCCL."""


class _Arguments(Struct):
    correlation: int | str | None = None


class _Event(Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    args: _Arguments | None = None

    @property
    def correlation(self) -> int | str | None:
        return None if self.args is None else self.args.correlation


def reduce_to_collectives(trace: IO[bytes], directory: Path) -> IO[bytes]:
    """A reduced copy of the trace, in a nameless file of ``directory``; the trace itself if its events cannot be
    read."""
    trace.seek(0)
    text = trace.read()
    begin, end = span_of_events(trace)
    try:
        events = msgspec.json.decode(text[begin - 1 : end + 1], type=list[Raw])
        kept = _choose(events)
    except msgspec.DecodeError:
        return trace
    reduced = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # the exporter closes it
    reduced.write(text[:begin] + b",\n".join(kept) + text[end:])
    reduced.flush()
    return reduced


def _choose(events: Iterable[Raw]) -> list[Raw]:
    decoded = [(event, msgspec.json.decode(event, type=_Event)) for event in events]
    launched = {one.correlation for _, one in decoded if one.cat == "kernel" and _KERNELS in one.name} - {None}
    return [event for event, one in decoded if _is_kept(one) or one.correlation in launched]


def _is_kept(event: _Event) -> bool:
    """Of the events without a duration, the names of processes and threads and the marks of the recording's ends stay;
    the arrows between events go."""
    if event.ph != "X":
        return event.ph in ("M", "i")
    return event.cat in _RANGES or event.cat == "Trace" or event.name.startswith(_OPERATORS)
