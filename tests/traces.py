"""Tiny traces written by hand: events in microseconds in, a `Trace` or `Facts` of the real reader out.

The events become Kineto JSON, as ``torch.profiler`` writes it today, and are read from a file. The reader counts time
from the first event, so begin at 0 where a test compares times.
"""

# ruff: noqa: PLR0913  # an event has many fields, and nearly all are given by name

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from profkit.core.marks import LINE_MARK, PAUSE_MARK, STEP_MARK
from profkit.derive.facts import Facts
from profkit.run.directory import CallSite, LiveSample, LoadSample, Run, SampledStack, SampledThread, StackSamples
from profkit.run.whole_run import RunAccount
from profkit.trace.events import Trace
from profkit.trace.kineto.reader import read_kineto
from profkit.trace.worker_records import Workers

MAIN = 1
"""Process and thread id of the main thread."""
DEVICE = 0
"""Process id that the device's streams have."""

Json = dict[str, Any]


def op(
    name: str,
    start: float,
    duration: float,
    *,
    dims: str | list[Any] | None = None,
    types: str | list[str] | None = None,
    concrete: str | list[str] | None = None,
    sequence: int | None = None,
    external: int | None = None,
    tid: int = MAIN,
) -> Json:
    """An operator. ``dims``, ``types``, ``concrete``: lists or their JSON, ``"[[4],[4]]"``, ``'["float","float"]'``."""
    return _event(
        "cpu_op",
        name,
        start,
        duration,
        tid,
        {
            "External id": external,
            "Sequence number": sequence,
            "Input Dims": _listed(dims),
            "Input type": _listed(types),
            "Concrete Inputs": _listed(concrete),
        },
    )


def annotation(name: str, start: float, duration: float, *, tid: int = MAIN, external: int | None = None) -> Json:
    """A ``record_function`` range: ``Optimizer.step#…``, ``enumerate(DataLoader)#…``, the user's own."""
    return _event("user_annotation", name, start, duration, tid, {"External id": external})


def step(number: int, start: float, duration: float, *, tid: int = MAIN) -> Json:
    """One of the profiler's own steps."""
    return annotation(f"{STEP_MARK}{number}", start, duration, tid=tid)


def mark(site: int, start: float, duration: float, *, tid: int = MAIN, external: int | None = None) -> Json:
    """The line tracer's mark of a call site; steps that hold one are located, not measured."""
    return annotation(f"{LINE_MARK}{site}", start, duration, tid=tid, external=external)


def pause(start: float, duration: float, *, tid: int = MAIN) -> Json:
    """profkit's own work."""
    return annotation(PAUSE_MARK, start, duration, tid=tid)


def python(name: str, start: float, duration: float, *, tid: int = MAIN) -> Json:
    """A Python frame: ``train.py(12): main``."""
    return _event("python_function", name, start, duration, tid, {})


def runtime(
    name: str,
    start: float,
    duration: float,
    *,
    correlation: int | None = None,
    tid: int = MAIN,
    external: int | None = None,
) -> Json:
    """A runtime call on the host: ``cudaLaunchKernel``, ``cudaStreamSynchronize``."""
    return _event("cuda_runtime", name, start, duration, tid, {"correlation": correlation, "External id": external})


def kernel(
    name: str,
    start: float,
    duration: float,
    *,
    correlation: int | None = None,
    stream: int = 7,
    external: int | None = None,
) -> Json:
    return _device_event("kernel", name, start, duration, stream, correlation, external)


def memcpy(
    name: str,
    start: float,
    duration: float,
    *,
    correlation: int | None = None,
    stream: int = 7,
    external: int | None = None,
    size_bytes: int | None = None,
) -> Json:
    """A copy: ``Memcpy HtoD (Pageable -> Device)``."""
    return _device_event("gpu_memcpy", name, start, duration, stream, correlation, external, size_bytes)


def memset(
    start: float,
    duration: float,
    *,
    correlation: int | None = None,
    stream: int = 7,
    external: int | None = None,
    size_bytes: int | None = None,
) -> Json:
    return _device_event("gpu_memset", "Memset (Device)", start, duration, stream, correlation, external, size_bytes)


def device_sync(kind: str, start: float, duration: float, *, stream: int = 7, correlation: int | None = None) -> Json:
    """A synchronisation by CUPTI's account: ``Stream Wait Event``, ``Event Sync``, ``Context Sync``."""
    return _device_event("cuda_sync", kind, start, duration, stream, correlation, None)


def arrow(
    number: int, call: float, work: float, *, tid: int = MAIN, stream: int = 7, category: str = "ac2g"
) -> list[Json]:
    """The two ends of an arrow from a runtime call that starts at ``call`` to the device's work that starts at
    ``work``."""
    common = {"id": number, "cat": category, "name": category}
    return [
        {"ph": "s", "pid": MAIN, "tid": tid, "ts": call, **common},
        {"ph": "f", "bp": "e", "pid": DEVICE, "tid": stream, "ts": work, **common},
    ]


def memory(
    at: float,
    size_bytes: int,
    address: int,
    *,
    device_type: int = 0,
    tid: int = MAIN,
    device: int = 0,
    held: int | None = None,
    reserved: int | None = None,
) -> Json:
    """An allocation, or with a negative size a free, at one moment. Device type 0 is the host, 1 CUDA. Traces of 2021
    do not say how much is ``held`` and ``reserved`` in all."""
    event = _event(
        "cpu_instant_event",
        "[memory]",
        at,
        0,
        tid,
        {
            "Bytes": size_bytes,
            "Addr": address,
            "Device Type": device_type,
            "Device Id": -1 if device_type == 0 else device,
            "Total Allocated": held,
            "Total Reserved": reserved,
        },
    )
    del event["dur"]
    return {**event, "ph": "i", "s": "t"}


def thread_name(tid: int, name: str) -> Json:
    return {"ph": "M", "name": "thread_name", "pid": MAIN, "tid": tid, "ts": 0, "args": {"name": name}}


def json_of(events: Iterable[Json], **top_level: Any) -> bytes:
    """The file that these events would be exported to: one event after another, each with its lists on one line."""
    head = json.dumps({"schemaVersion": 1, **top_level})
    return (head[:-1] + ', "traceEvents": [\n  ' + ",\n  ".join(map(json.dumps, events)) + "\n  ]\n}").encode()


def trace_of_bytes(content: bytes, name: str = "trace.json") -> Trace:
    """Read a file with this content."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_bytes(content)
        return read_kineto(path)


def trace_of(events: Iterable[Json], **top_level: Any) -> Trace:
    """The trace of these events; ``top_level`` are further keys of the file (``deviceProperties=[…]``)."""
    return trace_of_bytes(json_of(events, **top_level))


def facts_of(
    events: Iterable[Json],
    *,
    run: Run | None = None,
    callsites: tuple[CallSite, ...] = (),
    live: tuple[LiveSample, ...] = (),
    samples: tuple[LoadSample, ...] = (),
    workers: Workers | None = None,
    account: RunAccount | None = None,
    stacks: StackSamples | None = None,
    **top_level: Any,
) -> Facts:
    """The facts about these events, with what the run's side files would say."""
    trace = trace_of(events, **top_level)
    return Facts(trace, run, callsites, live, samples, workers, account=account, stacks=stacks)


def stacks_of(
    sites: tuple[CallSite, ...], shares: dict[tuple[int, ...], int], *, kind: str = "main", batch_from: int = -1
) -> StackSamples:
    """Two thousand samples of one thread: by the numbers of their lines, the per cent of the time that each stack
    takes. What is left of 100 has no line of the program."""
    stacks = (SampledStack(0, lines, "copy.deepcopy", 10**8 * share, batch_from) for lines, share in shares.items())
    threads = (SampledThread(kind, "", 10**10),)
    return StackSamples(period_ns=5 * 10**6, steps=9, threads=threads, sites=sites, stacks=tuple(stacks))


def rows_named(trace: Trace, *names: str) -> list[int]:
    """The rows of the events with one of these names, in the trace's order (by lane, then by start)."""
    return np.flatnonzero(trace.named(*names)).tolist()


def busy_fraction(facts: Facts, start_ns: int, end_ns: int) -> float:
    """Share of a window in which at least one stream of the device worked."""
    return facts.device.occupied.clipped_to(start_ns, end_ns).total_ns / max(end_ns - start_ns, 1)


def _event(category: str, name: str, start: float, duration: float, tid: int, arguments: Json) -> Json:
    known = {key: value for key, value in arguments.items() if value is not None}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": MAIN,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": known,
    }


def _device_event(
    category: str,
    name: str,
    start: float,
    duration: float,
    stream: int,
    correlation: int | None,
    external: int | None,
    size_bytes: int | None = None,
) -> Json:
    event = _event(
        category,
        name,
        start,
        duration,
        stream,
        {
            "External id": external,
            "correlation": correlation,
            "device": 0,
            "stream": stream,
            "bytes": size_bytes,
        },
    )
    return {**event, "pid": DEVICE}


def _listed(value: str | list[Any] | None) -> Any:
    return json.loads(value) if isinstance(value, str) else value
