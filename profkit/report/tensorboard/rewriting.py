"""Rewriting a trace in the names of 2021, so that torch-tb-profiler 0.4.3 reads it correctly.

That plugin, TensorBoard's "PyTorch Profiler" tab, is no longer developed. On today's traces it silently shows no device
time per operator, no runtime, no DataLoader, each GPU step twice, and NCCL kernels as computation. Its
``profiler/trace.py``, ``event_parser.py`` and ``op_tree.py`` show what it looks for. A copy differs as follows:

- ``cuda_runtime``, ``cuda_driver`` and the like become ``Runtime``. ``gpu_user_annotation`` (a shadow of each step and
  collective) gets a category that the plugin ignores. A DataLoader's ``user_annotation`` becomes a ``cpu_op``.
- Memory on a device other than CPU (0) and CUDA (1), such as ROCm (6), becomes CUDA's, or the Memory view would break.
- profkit's own marks are removed, and so are the events of the step with line marks, which make it two to four times
  as long. Steps that are not measured (a first one that compiles, say) lose the profiler's mark. So the plugin shows
  the steps that profkit measures. If the profiler marked none, the steps that profkit found are marked.
- The first step begins when the device has finished what came before, recorded or not.
- Device work without a time is removed: Kineto writes zeros for it in the located step.
- Each launch, and what it launched, gets the id of the innermost operator around it on its thread. Since 2022 the
  recorded id is often missing, or is that of an annotation that the plugin does not read.
- A trace that is nested too deep is not copied, because the plugin recurses once or twice per level.
- Events without a time are removed, and fields that the plugin requires are filled in. Otherwise loading fails.

The links from forward to backward stay ``fwdbwd``. With their old name, ``forward_backward``, the plugin puts backward
operators below their modules, but fails on the whole trace if a module (a frozen layer, an ``nn.Identity``) has no
backward operator.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, TypeVar

import msgspec

from profkit.core.marks import STEP_MARK

Fields = dict[str, msgspec.Raw]
"""One event. Values stay the text in the file, so that what is not changed is copied exactly."""

_LOADERS = (b'"enumerate(DataLoader)#', b'"enumerate(DataPipe)#')
_COLLECTIVES = frozenset(
    f'"{library}:{name}"'.encode()
    for library in ("nccl", "gloo")
    for name in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
_RENAMED = {
    b'"nccl:_all_gather_base"': b'"nccl:all_gather"',
    b'"nccl:_reduce_scatter_base"': b'"nccl:reduce_scatter"',
}
_OPERATORS = (b'"cpu_op"', b'"operator"')
_FRAME, _MODULE = b'"python_function"', b'"nn.Module: '
_LAUNCHES = (b'"runtime"',)
_RUNTIMES = (b'_runtime"', b'_driver"', b'"runtime"')
_STEP = f'"{STEP_MARK}'.encode()
_DEVICE_WORK = (b'"kernel"', b'"gpu_memcpy"', b'"gpu_memset"', b'"memcpy"', b'"memset"')
_ON_DEVICE = (*_DEVICE_WORK, b'"gpu_user_annotation"')
_BUSY = b'"busy until here with what was not recorded"'
_ROUNDING = 0.5
"""A float of microseconds since 1970 is only precise to a quarter of one."""
_KNOWN_DEVICES = (b"0", b"1")
_NO_CORRELATION = {b"", b"0"}
_NO_OPERATOR = msgspec.Raw(b"0")
_IDS = ("External id", "external id")
_number = msgspec.json.Decoder(float, strict=False)
_arguments = msgspec.json.Decoder(Fields)
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class Window:
    """A step on the host's clock, in nanoseconds. ``begun_ns`` is when the device had finished the step before. Only
    ``measured`` steps are steps of the copy. Times of events are in microseconds, as in the file."""

    start_ns: int
    end_ns: int
    begun_ns: int
    measured: bool
    located: bool

    @property
    def begun(self) -> float:
        return self.begun_ns / 1000

    @property
    def has_to_wait(self) -> bool:
        """Whether the device was still busy with other work when the host began."""
        return self.begun_ns > self.start_ns + 1000 * _ROUNDING

    @property
    def is_left_out(self) -> bool:
        """Steps with line marks are left out, unless they are measured for want of others."""
        return self.located and not self.measured

    def begins(self, time: float) -> bool:
        """Whether something that begins at ``time`` belongs to the step."""
        return self.start_ns / 1000 - _ROUNDING <= time < self.end_ns / 1000 - _ROUNDING

    def counted_from(self, base_ns: int) -> Window:
        """The same step with times counted from ``base_ns``."""
        start_ns, end_ns, begun_ns = self.start_ns - base_ns, self.end_ns - base_ns, self.begun_ns - base_ns
        return replace(self, start_ns=start_ns, end_ns=end_ns, begun_ns=begun_ns)


@dataclass(frozen=True, slots=True)
class _Span:
    """An event of one thread; times in microseconds."""

    start: float
    end: float
    event: Fields


def rewrite_events(events: list[Fields], steps: Sequence[Window] = ()) -> list[Fields]:
    """The events that the plugin should read, changed in place. Without ``steps``, all marked steps are shown."""
    kept = [event for event in events if _is_wanted(event)]
    if any(step.is_left_out for step in steps):
        kept = _without_located(kept, [step for step in steps if step.is_left_out])
    measured = [step for step in steps if step.measured]
    if steps and any(_text(event, "name").startswith(_STEP) for event in kept):
        _unmark(kept, measured)
    elif steps:
        kept += _marks(kept, measured)
    for event in kept:
        _rename(event)
    _relink(kept)
    return _begin(kept, measured[0]) if measured else kept


def _marks(events: list[Fields], measured: Sequence[Window]) -> list[Fields]:
    """Marks like the profiler's for steps that profkit found by other signs, on the thread with most of their
    operators."""
    operators = (event for event in events if _is_operator(_text(event, "cat").lower(), _text(event, "name")))
    inside = (event for event in operators if _begins_in(event, measured))
    threads = Counter((_text(event, "pid"), _text(event, "tid")) for event in inside)
    if not threads:
        return []
    ((process, thread), _) = threads.most_common(1)[0]
    return [_mark(number, step, process, thread) for number, step in enumerate(measured)]


def _mark(number: int, step: Window, process: bytes, thread: bytes) -> Fields:
    start, duration = step.start_ns / 1000, (step.end_ns - step.start_ns) / 1000
    name, kind = f"{STEP_MARK}{number}", "user_annotation"
    values = {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": duration, "args": dict[str, int]()}
    encoded = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}
    return {**encoded, "pid": msgspec.Raw(process), "tid": msgspec.Raw(thread)}


def _begin(events: list[Fields], first: Window) -> list[Fields]:
    """Make the plugin's first step begin at ``first.begun_ns``. The plugin begins it where the device's last work
    before the step's own ends, among work that no step launched. So earlier work that ends later is removed, and an
    event of no length stands for work that was not recorded."""
    launched_at = _Launches((event, _figure(event, "ts")) for event in events if _is_launch(event))
    on_device = [event for event in events if _text(event, "cat").lower() in _DEVICE_WORK]
    own = [event for event in on_device if _is_within(launched_at.of(event), first)]
    if not own:
        return events
    work_us = min(_figure(event, "ts") or 0.0 for event in own)
    foreign = (event for event in on_device if launched_at.of(event) is None)
    late = {id(event) for event in foreign if first.begun + _ROUNDING < _end_of(event) < work_us}
    kept = [event for event in events if id(event) not in late] if late else events
    if first.has_to_wait:
        at = msgspec.Raw(msgspec.json.encode(min(first.begun, work_us - _ROUNDING)))
        mark = {"cat": b'"gpu_memset"', "name": _BUSY, "dur": b"0", "args": b"{}"}
        kept.append({**own[0], "ts": at, **{key: msgspec.Raw(value) for key, value in mark.items()}})
    return kept


def _is_within(time: float | None, step: Window) -> bool:
    return time is not None and step.begins(time)


def _end_of(event: Fields) -> float:
    return (_figure(event, "ts") or 0.0) + (_figure(event, "dur") or 0.0)


def _without_located(events: list[Fields], located: Sequence[Window]) -> list[Fields]:
    """All but what the host began in the located steps, and what that launched. Allocations stay, because the memory
    curve needs them."""
    kept, on_device, launches = list[Fields](), list[Fields](), list[tuple[Fields, bool]]()
    for event in events:
        if _text(event, "cat").lower() in _ON_DEVICE:
            on_device.append(event)
            continue
        is_left_out = _text(event, "ph") == b'"X"' and _begins_in(event, located)
        if not is_left_out:
            kept.append(event)
        if _is_launch(event):
            launches.append((event, is_left_out))
    left_out = _Launches(launches)
    return kept + [event for event in on_device if not left_out.of(event)]


class _Launches(Generic[_Told]):
    """What is told of each launch, for the work that it put on the device. Of launches with one id, as recordings that
    were joined may have, it is the last before the work, else the first."""

    def __init__(self, told: Iterable[tuple[Fields, _Told]]) -> None:
        self._of_id: dict[bytes, list[tuple[float, _Told]]] = {}
        for event, what in told:
            if (correlation := _correlation(event)) not in _NO_CORRELATION:
                self._of_id.setdefault(correlation, []).append((_figure(event, "ts") or 0.0, what))
        for launches in self._of_id.values():
            launches.sort(key=itemgetter(0))

    def of(self, event: Fields) -> _Told | None:
        """None if no launch is known."""
        launches = self._of_id.get(_correlation(event))
        if not launches:
            return None
        if len(launches) == 1:
            return launches[0][1]
        at = bisect_right(launches, _figure(event, "ts") or 0.0, key=itemgetter(0))
        return launches[max(0, at - 1)][1]


def _correlation(event: Fields) -> bytes:
    return bytes(_arguments_of(event).get("correlation", b""))


def _unmark(events: list[Fields], measured: Sequence[Window]) -> None:
    """Remove the profiler's mark from steps that are not measured."""
    for event in events:
        if _text(event, "name").startswith(_STEP) and not _begins_in(event, measured):
            event["name"] = msgspec.Raw(b'"not measured: ' + _text(event, "name")[1:])


def _begins_in(event: Fields, steps: Sequence[Window]) -> bool:
    start = _figure(event, "ts")
    return start is not None and any(step.begins(start) for step in steps)


def _is_launch(event: Fields) -> bool:
    return _text(event, "cat").lower().endswith(_RUNTIMES)


def count_levels(events: list[Fields]) -> int:
    """How deep the plugin's deepest tree of operators and modules will be."""
    threads: dict[tuple[bytes, bytes], list[tuple[float, float]]] = {}
    for event in events:
        category, name = _text(event, "cat").lower(), _text(event, "name")
        is_in_tree = _is_operator(category, name) or (category == _FRAME and name.startswith(_MODULE))
        if is_in_tree and _text(event, "ph") == b'"X"':
            start, duration = _figure(event, "ts") or 0.0, _figure(event, "dur") or 0.0
            threads.setdefault((_text(event, "pid"), _text(event, "tid")), []).append((start, -(start + duration)))
    return max((_levels_of(sorted(spans)) for spans in threads.values()), default=0)


def _levels_of(spans: list[tuple[float, float]]) -> int:
    """How deep sorted spans (start, negated end) nest: a span is inside the last one that it begins in and does not
    outlive."""
    levels, around = 0, list[float]()
    for start, minus_end in spans:
        while around and not (start < around[-1] and -minus_end <= around[-1]):
            around.pop()
        around.append(-minus_end)
        levels = max(levels, len(around))
    return levels


def _is_wanted(event: Fields) -> bool:
    """Whether the event can be shown. Fills in the fields that the plugin requires."""
    if _text(event, "name").startswith(b'"profkit.'):
        return False
    if not _text(event, "name").startswith(b'"'):
        event["name"] = msgspec.Raw(b'""')
    if _text(event, "ph") != b'"X"':
        return True
    start, duration = _figure(event, "ts"), _figure(event, "dur")
    is_launch_or_work = _is_launch(event) or _text(event, "cat").lower() in _ON_DEVICE
    if start is None or (start == 0 and not duration and is_launch_or_work):
        return False
    if _text(event, "ts").startswith(b'"'):
        event["ts"] = msgspec.Raw(msgspec.json.encode(start))
    if duration is None or duration < 0 or _text(event, "dur").startswith(b'"'):
        event["dur"] = msgspec.Raw(msgspec.json.encode(max(duration or 0.0, 0.0)))
    if not _text(event, "cat").startswith(b'"'):
        event["cat"] = msgspec.Raw(b'""')
    return True


def _rename(event: Fields) -> None:
    category, name = _text(event, "cat").lower(), _text(event, "name")
    if category.endswith(_RUNTIMES):
        event["cat"] = msgspec.Raw(b'"Runtime"')
    elif category == b'"gpu_user_annotation"':
        event["cat"] = msgspec.Raw(b'"gpu_annotation"')
    elif category == b'"user_annotation"' and name.startswith(_LOADERS):
        event["cat"] = msgspec.Raw(b'"cpu_op"')
    elif category == b'"user_annotation"' and name in _RENAMED:
        event["name"] = msgspec.Raw(_RENAMED[name])
    elif name == b'"[memory]"':
        arguments = _arguments_of(event)
        if bytes(arguments.get("Device Type", b"0")) not in _KNOWN_DEVICES:
            event["args"] = msgspec.Raw(msgspec.json.encode({**arguments, "Device Type": 1}))


def _relink(events: list[Fields]) -> None:
    """Give each launch and its device work the id of the operator that launched it, or 0."""
    owners: list[tuple[Fields, msgspec.Raw]] = []
    for operators, launches in _by_thread(events):
        for launch, owner in _innermost(operators, launches):
            arguments = _arguments_of(launch.event)
            owner_id = _id_of(_arguments_of(owner.event)) if owner else None
            _set_id(launch.event, arguments, owner_id or _NO_OPERATOR)
            owners.append((launch.event, owner_id or _NO_OPERATOR))
    owner_of = _Launches(owners)
    for event in events:
        if _text(event, "cat").lower() in _DEVICE_WORK and _text(event, "ph") == b'"X"':
            owner_id = owner_of.of(event)
            if owner_id is not None:
                _set_id(event, _arguments_of(event), owner_id)


def _by_thread(events: list[Fields]) -> Iterator[tuple[list[_Span], list[_Span]]]:
    """For each thread that launched anything: the operators that the plugin reads, and the launches."""
    threads: dict[tuple[bytes, bytes], tuple[list[_Span], list[_Span]]] = {}
    for event in events:
        if _text(event, "ph") != b'"X"':
            continue
        category = _text(event, "cat").lower()
        is_launch = category in _LAUNCHES
        if is_launch or _is_operator(category, _text(event, "name")):
            start = _figure(event, "ts") or 0.0
            span = _Span(start, start + (_figure(event, "dur") or 0.0), event)
            key = (_text(event, "pid"), _text(event, "tid"))
            threads.setdefault(key, ([], []))[is_launch].append(span)
    return (both for both in threads.values() if both[1])


def _is_operator(category: bytes, name: bytes) -> bool:
    if category == b'"user_annotation"':
        return name in _COLLECTIVES or name.startswith(b'"ProfilerStep#')
    return category in _OPERATORS


def _innermost(operators: list[_Span], launches: list[_Span]) -> Iterator[tuple[_Span, _Span | None]]:
    """Each launch with the innermost operator around it."""
    waiting = sorted(operators, key=lambda span: (-span.start, span.end))
    around: list[_Span] = []
    for launch in sorted(launches, key=lambda span: span.start):
        while waiting and waiting[-1].start <= launch.start:
            around.append(waiting.pop())
        around = [span for span in around if span.end > launch.start]
        yield launch, next((span for span in reversed(around) if span.end >= launch.end), None)


def _text(event: Fields, key: str) -> bytes:
    return bytes(event.get(key, b""))


def _figure(event: Fields, key: str) -> float | None:
    """A finite number, even one written as a string; None for anything else."""
    try:
        value = _number.decode(event[key])
    except (KeyError, msgspec.DecodeError):
        return None
    return value if math.isfinite(value) else None


def _arguments_of(event: Fields) -> Fields:
    try:
        return _arguments.decode(event["args"])
    except (KeyError, msgspec.DecodeError):
        return {}


def _id_of(arguments: Fields) -> msgspec.Raw | None:
    return next((arguments[name] for name in _IDS if name in arguments), None)


def _set_id(event: Fields, arguments: Fields, value: msgspec.Raw) -> None:
    for name in _IDS:
        arguments.pop(name, None)
    arguments[_IDS[0]] = value
    event["args"] = msgspec.Raw(msgspec.json.encode(arguments))
