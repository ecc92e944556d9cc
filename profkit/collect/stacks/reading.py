"""What py-spy wrote (Chrome's trace format) becomes stacks of the program's lines, each with its time."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from profkit.collect.stacks.callees import Frame, name_callee
from profkit.collect.stacks.requests import StackRequest
from profkit.run.directory import CallSite, SampledStack, SampledThread, StackSamples
from profkit.source.code import PROFKIT, around_comprehension, source_line

_MOST_BYTES = 256 << 20
_MOST_STACKS = 2000
_MOST_LINES = 64
"""Of one stack: a recursion has the same few lines again and again."""
_OWN_THREADS = "profkit-"
_TORCH = os.path.join("site-packages", "torch", "")
_DATA = os.path.join("torch", "utils", "data")
_WORKER = os.path.join(_DATA, "_utils", "worker.py")
_FETCH = os.path.join(_DATA, "_utils", "fetch.py")
_LOADER = os.path.join(_DATA, "dataloader.py")
_NOT_READ = "the samples of the program's stacks could not be read"
_TOO_LONG = "the steps were too long for their stacks to be sampled as a whole"


_Frames: TypeAlias = tuple[Frame, ...]


class _Arguments(Struct):
    filename: str = ""
    line: int | None = None


class _Event(Struct):
    name: str
    ph: str
    pid: int
    tid: int
    ts: float
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Place(NamedTuple):
    """A thread: its kind, its name, and the process unless it is a worker's."""

    kind: str
    name: str
    process: int


class _Stack(NamedTuple):
    lines: tuple[tuple[str, int, str], ...]
    callee: str
    batch_from: int
    in_torch: bool


def read_samples(
    path: Path, request: StackRequest, started_ns: int, stopped_ns: int, period_ns: int, is_user: Mapping[str, bool]
) -> StackSamples:
    """The samples of the steps that the request names. py-spy began at ``started_ns`` and was stopped at
    ``stopped_ns``."""
    from_ns, to_ns = request.from_ns, request.to_ns
    if not request.is_over:  # the program ended without Python's own exit
        from_ns, to_ns = request.plain_ns or request.begun_ns, stopped_ns
    elif not request.steps or to_ns > stopped_ns:
        return StackSamples(_TOO_LONG if request.steps else "")
    try:
        if path.stat().st_size > _MOST_BYTES:
            return StackSamples(_TOO_LONG)
        events = msgspec.json.decode(path.read_bytes(), type=list[_Event])
    except (OSError, msgspec.DecodeError):
        return StackSamples(_NOT_READ)
    seen: defaultdict[tuple[int, int], Counter[_Frames]] = defaultdict(Counter)
    for process, thread, frames, ns in _stretches(events, from_ns - started_ns, to_ns - started_ns):
        seen[process, thread][frames] += ns
    spent = Counter[tuple[_Place, _Stack]]()
    for (process, thread), stacks in seen.items():
        for frames, ns in _completed(stacks).items():
            if (found := _classify(request, process, thread, frames, is_user)) is not None:
                spent[found] += ns
    return _tabulate(spent, period_ns, request)


def _completed(stacks: Counter[_Frames]) -> Counter[_Frames]:
    """The stacks of a thread, all from its outermost call on.

    py-spy reads while the program runs, so a generator that is just being resumed has no caller yet. Its callers are
    those that the same function has most of the time; without any, the stack is dropped.
    """
    roots = Counter[tuple[str, str]]()
    parts = [(*_split(frames), ns) for frames, ns in stacks.items()]
    for _, calls, ns in parts:
        roots.update({frame[:2]: ns for frame in calls[:1]})
    root = next((function for function, _ in roots.most_common(1)), None)
    # Only what lacks a caller is looked for: of deep stacks, all the calls' callers would take minutes.
    callers: dict[tuple[str, str], Counter[_Frames]] = {function: Counter() for function in roots if function != root}
    complete = Counter[_Frames]()
    for heads, calls, ns in parts:
        if calls and calls[0][:2] == root:
            complete[heads + calls] += ns
            for i, frame in enumerate(calls[1:], 1):
                if frame[:2] in callers:
                    callers[frame[:2]][heads + calls[:i]] += ns
    around = {function: max(found, key=found.__getitem__) for function, found in callers.items() if found}
    for _, calls, ns in parts:
        if calls and calls[0][:2] in around:
            complete[around[calls[0][:2]] + calls] += ns
    return complete


def _split(frames: _Frames) -> tuple[_Frames, _Frames]:
    """What names the process and the thread, and the calls."""
    at = next((i for i, frame in enumerate(frames) if frame.file), len(frames))
    return frames[:at], frames[at:]


def _stretches(events: list[_Event], from_ns: int, to_ns: int) -> Iterator[tuple[int, int, _Frames, int]]:
    """Process, thread, frames from the outermost on, and how long they were on the stack within these times."""
    opened: dict[tuple[int, int], tuple[list[Frame], int]] = {}
    for event in events:
        key, now_ns = (event.pid, event.tid), int(event.ts * 1000)
        frames, since_ns = opened.get(key) or ([], now_ns)
        if now_ns > since_ns:
            ns = min(now_ns, to_ns) - max(since_ns, from_ns)
            if ns > 0 and frames:
                yield *key, tuple(frames), ns
        if event.ph == "B":
            frames.append(Frame(event.name, event.args.filename, event.args.line or 0))
        elif event.ph == "E" and frames:
            frames.pop()
        opened[key] = frames, now_ns


def _classify(
    request: StackRequest, process: int, thread: int, frames: _Frames, is_user: Mapping[str, bool]
) -> tuple[_Place, _Stack] | None:
    """None for what is not the program's own work."""
    heads = [frame.name for frame in frames if not frame.file]
    name = next((head.partition(": ")[2] for head in heads if head.startswith("thread (")), "")
    calls = [frame for frame in frames if frame.file]
    if name.startswith(_OWN_THREADS) or not calls:
        return None
    if (process, thread) == (request.process, request.thread):
        place, loading = _Place("main", name, process), _LOADER
    elif process == request.process:
        place, loading = _Place("thread", name, process), _LOADER
    elif any(frame.file.endswith(_WORKER) and frame.name == "_worker_loop" for frame in calls):
        place, loading = _Place("worker", "", 0), _FETCH
    else:
        return None
    batch_at = next((i for i, frame in enumerate(calls) if frame.file.endswith(loading)), len(calls))
    if place.kind == "worker" and batch_at == len(calls):  # it waits for work, or hands a batch over
        return None
    mine = [i for i, frame in enumerate(calls) if is_user[frame.file] and (i > batch_at or place.kind != "worker")]
    below = calls[mine[-1] + 1 :] if mine else calls
    if mine and any(frame.file.startswith(PROFKIT) for frame in below):
        return None
    sites = [(os.path.abspath(calls[i].file), calls[i].line, around_comprehension(calls[i].name)) for i in mine]
    lines = tuple(dict.fromkeys(reversed(sites)))[:_MOST_LINES][::-1]  # of a recursion, the innermost places
    inside = {site for i, site in zip(mine, sites, strict=True) if i > batch_at}
    outside = [site for site in lines if site not in inside]
    in_batch = batch_at < len(calls)
    callee = name_callee(lines[-1][0], lines[-1][1], below) if lines else ""
    in_torch = any(_TORCH in frame.file for frame in below)
    return place, _Stack(lines, callee, len(outside) if in_batch else -1, in_torch)


def _tabulate(spent: Counter[tuple[_Place, _Stack]], period_ns: int, request: StackRequest) -> StackSamples:
    of_place = Counter[_Place]()
    for (place, _), ns in spent.items():
        of_place[place] += ns
    threads = {place: number for number, (place, _) in enumerate(of_place.most_common())}
    sites: dict[tuple[str, int, str], int] = {}
    stacks = []
    for (place, stack), ns in spent.most_common(_MOST_STACKS):
        if stack.lines:
            numbers = tuple(sites.setdefault(site, len(sites)) for site in stack.lines)
            stacks.append(SampledStack(threads[place], numbers, stack.callee, ns, stack.batch_from, stack.in_torch))
    return StackSamples(
        period_ns=period_ns,
        steps=request.steps,
        were_recorded=request.were_recorded,
        threads=tuple(SampledThread(place.kind, place.name, of_place[place]) for place in threads),
        sites=tuple(CallSite(file, line, function, source_line(file, line)) for file, line, function in sites),
        stacks=tuple(stacks),
    )
