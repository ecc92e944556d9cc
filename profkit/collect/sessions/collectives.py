"""A light recording: what a trace says of collectives and steps, and nothing else.

PyTorch's profiler records every operator or none, so everything is recorded, without memory, and what is not wanted is
left out of the file. Kept are the ranges (steps, what the optimizer, the DataLoader and the backend of a process group
mark, profkit's own marks), the operators of ``torch.distributed``, the kernels of NCCL, and what launched these.
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
"""In the name of each kernel of NCCL and of RCCL."""


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
    """A copy of the trace, in a file of ``directory`` without a name, without what is left out; the trace itself if its
    events cannot be told apart."""
    trace.seek(0)
    text = trace.read()
    begin, end = span_of_events(trace)
    try:
        events = msgspec.json.decode(text[begin - 1 : end + 1], type=list[Raw])
        kept = _choose(events)
    except msgspec.DecodeError:
        return trace
    reduced = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # who exports it closes it
    reduced.write(text[:begin] + b",\n".join(kept) + text[end:])
    reduced.flush()
    return reduced


def _choose(events: Iterable[Raw]) -> list[Raw]:
    told = [(event, msgspec.json.decode(event, type=_Event)) for event in events]
    launched = {one.correlation for _, one in told if one.cat == "kernel" and _KERNELS in one.name} - {None}
    return [event for event, one in told if _is_kept(one) or one.correlation in launched]


def _is_kept(event: _Event) -> bool:
    """Everything but complete events is kept for its names of processes and threads, or marks where the recording
    begins and ends, except the arrows between events."""
    if event.ph != "X":
        return event.ph in ("M", "i")
    return event.cat in _RANGES or event.cat == "Trace" or event.name.startswith(_OPERATORS)
