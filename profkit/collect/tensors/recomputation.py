"""Which of PyTorch's functions the program calls again with what it has called them with before.

For the located step and the one after it a function mode is told of each call of PyTorch from Python, before autograd
and without any change to it. A call is known by its function, its numbers and options, the values of its tensors
(`profkit.collect.tensors.identities`) and the modes that it runs in: a second one of the same makes the same, unless it
draws random numbers. Around each call of the located step lies an event, so that the trace tells what it cost and at
which line it was. Nothing in a backward pass is looked at: activations that are computed again there are so on purpose.

Where a mode might be noticed nothing is watched: PyTorch's own transformer layers take another way under one, and the
compiler would compile again, or fail where it was told to compile all in one.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import EllipsisType, FrameType
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn, overrides
from torch.autograd import forward_ad

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import uncompiled
from profkit.collect.program.living import living
from profkit.collect.sessions.host_marks import open_mark
from profkit.collect.tensors.identities import Identities, Identity, Memory, is_plain
from profkit.marks import CALL_MARK
from profkit.run import Recomputation

_MOST_CALLS = 20_000
"""In the two steps; each takes 10 to 20 us."""
_MOST_NS = 600_000_000
_MOST_GIVEN = 64
"""Members of a list that a call is given: what is longer is data, and cannot be told apart at no cost."""
_MOST_NESTED = 3
_PASSED_BY = ("__get__", "__set__", "__delete__")
"""Of properties: to read a tensor's shape is a call as well."""
_OPENS_RANGE = "_record_function_"
"""What begins and ends a range in the recording: around it an event would lie across it."""
_ENDS_GRAPH = ("backward", "grad")
"""What frees a graph: what is differentiated is computed again for the next one."""
_SHARES = ("numpy", "__array__", "__dlpack__", "data_ptr", "share_memory_", "values", "_values", "indices", "_indices")
"""What lets others than PyTorch write to a tensor."""
_PLAIN = (int, bool, str, type(None), EllipsisType, torch.dtype, torch.device, torch.layout, torch.memory_format)
_NOTICING = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""In evaluation these take a faster way of their own, and not where there is a mode."""
_push: Callable[[Any], None] | None = getattr(overrides, "_push_mode", None)
_pop: Callable[[], Any] | None = getattr(overrides, "_pop_mode", None)
_count_modes: Callable[[], int] | None = getattr(overrides, "_len_torch_function_stack", None)
"""Private: without them nothing is watched."""


class _Untold(Exception):
    """An argument of which nothing is known."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call that may repeat another, its ``first``; ``made`` is the memory that it left its results in, with how often
    that had been written to by then, ``values`` what they hold. ``users`` are the calls that took its results."""

    number: int
    step: int
    key: Hashable
    has_tensors: bool
    first: _Call | None = None
    made: list[tuple[Memory, int]] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    users: list[_Call | None] = field(default_factory=list)

    @property
    def is_needless(self) -> bool:
        """Whether the first one's results would do: nothing was written into either's since but what the other's were
        told as well. What is made of numbers alone is needless with what is made of it: two buffers of zeros may be two
        on purpose."""
        first = self.first
        if first is None or not (self.has_tensors or (self.users and all(one and one.first for one in self.users))):
            return False
        for (mine, mine_before), (other, before) in zip(self.made, first.made, strict=True):
            since = mine.written[mine_before:]
            if mine is not other and not (all(since) and len(since) == len(other.written) - before):
                return False
        return bool(self.made)


class CallWatch(overrides.TorchFunctionMode):
    """`begin`, then `end_step` twice; ``found`` is None where nothing could be told. `take_spent_ns` is what the
    watching took since it was last asked for."""

    def __init__(self) -> None:
        self.found: Recomputation | None = None
        self.is_on = self._is_aside = False
        self._spent_ns = self._all_ns = 0
        self._thread = self._step = self._graphs = 0
        self._forget()

    def _forget(self) -> None:
        self._identities = Identities()
        self._known: dict[Hashable, _Call] = {}
        self._makers: dict[Identity, _Call] = {}
        self._calls: list[_Call] = []

    @property
    def is_installed(self) -> bool:
        return self._thread != 0

    def begin(self) -> None:
        """With the located step, unless a mode would be noticed."""
        self.stop()
        self.found = None
        if _push is not None and not self.is_installed and _nobody_notices():
            self._all_ns = self._spent_ns = self._step = self._graphs = 0
            self._thread, self.is_on = threading.get_ident(), True
            _compiler_starts().append(self._make_way)
            _push(self)

    def end_step(self) -> None:
        """The located step is over, or the one after it."""
        if not self.is_on:
            self.stop()
            return
        needless = [call for call in self._calls if call.is_needless and call.step == self._step]
        again = [(call.number, call.first.number) for call in needless if call.first and call.first.step == self._step]
        across = {call.first.number for call in needless if call.first and call.first.step < self._step}
        if self._step == 0:
            self.found = Recomputation(again=tuple(again))
            self._step = 1
        else:
            self.found = replace(self.found or Recomputation(), each_step=tuple(sorted(across)))
            self.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is called meanwhile is none of the program's."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def take_spent_ns(self) -> int:
        spent, self._spent_ns = self._spent_ns, 0
        return spent

    def stop(self) -> None:
        """Look no more, and let go of everything."""
        self.is_on = False
        self._forget()
        is_mine = self.is_installed and threading.get_ident() == self._thread
        if is_mine and not self._leave() and sys.gettrace() is None:
            sys.settrace(self._leave_later)  # amid a call the mode is put aside, and comes back at its end

    def _make_way(self, _compiled: Any) -> None:
        """For the compiler, which follows no mode that it cannot trace."""
        with suppress(Exception):
            self.stop()

    def _leave(self) -> bool:
        """Take the mode away, wherever it stands among the program's own."""
        if _push is None or _pop is None or _count_modes is None:
            return True
        above = [_pop() for _ in range(_count_modes())]
        is_found = self in above
        for mode in reversed(above):
            if mode is not self:
                _push(mode)
        if is_found:
            self._thread = 0
            with suppress(ValueError):
                _compiler_starts().remove(self._make_way)
        return is_found

    def _leave_later(self, _frame: FrameType, _event: str, _argument: Any) -> None:
        """The next function that is called outside of the mode's own call."""
        with suppress(Exception):
            if self._leave():
                sys.settrace(None)

    @uncompiled
    def __torch_function__(
        self, function: Any, _types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        name = getattr(function, "__name__", "")
        is_passed_by = name in _PASSED_BY or name.startswith(_OPENS_RANGE)
        if not self.is_on or self._is_aside or is_passed_by or in_backward_pass():
            return function(*arguments, **named)
        call = self._told_of(function, name, arguments, named)
        if call is None:
            return function(*arguments, **named)
        if self._step or call.call is None:
            result = function(*arguments, **named)
        else:
            mark = open_mark(f"{CALL_MARK}{call.call.number}")
            mark.__enter__()
            try:
                result = function(*arguments, **named)
            finally:
                mark.__exit__(None, None, None)
        self._over(call, result)
        return result

    def _told_of(self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Open | None:
        """What there is to know of a call before it is made; None where nothing is looked at any more."""
        begun = time.perf_counter_ns()
        try:
            return self._look_at(function, name, arguments, named)
        except Exception:  # a tensor that is none, in a library's own mode: nothing is told
            self.is_on = False
            return None
        finally:
            self._spend(begun)

    def _over(self, opened: _Open, result: Any) -> None:
        begun = time.perf_counter_ns()
        try:
            self._keep(opened, result)
        except Exception:
            self.is_on = False
        finally:
            self._spend(begun)

    def _spend(self, begun: int) -> None:
        took = time.perf_counter_ns() - begun
        self._spent_ns += took
        self._all_ns += took
        if self._all_ns > _MOST_NS or len(self._calls) >= _MOST_CALLS or len(self._identities) >= 2 * _MOST_CALLS:
            self.is_on = False

    def _look_at(self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Open:
        given = list(_plain_in((arguments, tuple(named.values()))))
        self._graphs += name in _ENDS_GRAPH
        if name in _SHARES:
            for tensor in given:
                self._identities.memory_of(tensor).is_shared = True
        makers = {maker for tensor in given if (maker := self._maker_of(tensor)) is not None}
        call = self._recognise(function, name, arguments, named, given)
        for maker in makers:
            maker.users.append(call)
        random = _random_state() if call is not None and call.first is not None else None
        return _Open(call, given, [tensor._version for tensor in given], random)

    def _maker_of(self, tensor: Tensor) -> _Call | None:
        identity = self._identities.identity_of(tensor)
        return None if identity is None else self._makers.get(identity)

    def _recognise(
        self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], given: list[Tensor]
    ) -> _Call | None:
        if "empty" in name or name in _ENDS_GRAPH or name in _SHARES or _has_tangents():
            return None  # what lies in fresh memory may be anything
        try:
            described = self._describe(arguments), tuple((key, self._describe(one)) for key, one in named.items())
        except _Untold:
            return None
        differentiates = torch.is_grad_enabled()
        graph = self._graphs if differentiates and any(tensor.requires_grad for tensor in given) else None
        key = (function, *described, differentiates, graph, torch.get_default_dtype(), *_autocast())
        first = self._known.get(key)
        if first is not None and not all(map(self._identities.is_unchanged, given)):
            return None
        call = _Call(len(self._calls), self._step, key, bool(given), first)
        self._calls.append(call)
        return call

    def _describe(self, value: Any) -> Hashable:
        """All that can make a difference; raises `_Untold`."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind is float:
            return kind, value.hex()
        if kind is slice:
            return kind, self._describe((value.start, value.stop, value.step))
        if kind in (tuple, list, torch.Size) and len(value) <= _MOST_GIVEN:
            return kind, tuple([self._describe(one) for one in value])
        known = self._identities.value_of(value) if is_plain(value) else None
        if known is None:
            raise _Untold
        return kind, known, value.requires_grad, value.device

    def _keep(self, opened: _Open, result: Any) -> None:
        call = opened.call
        if call is not None and call.first is not None and opened.random != _random_state():
            self._known.pop(call.key, None)
            call.first = None
        is_again = call is not None and call.first is not None
        written = [tensor for tensor, version in zip(opened.given, opened.versions, strict=True)
                   if tensor._version != version]  # fmt: skip
        for memory in {self._identities.memory_of(tensor) for tensor in written}:
            memory.written.append(is_again)
        if call is not None:
            self._give_values(call, [*_plain_in((result,)), *written])

    def _give_values(self, call: _Call, made: list[Tensor]) -> None:
        first = call.first
        if first is not None and len(first.values) != len(made):
            call.first = first = None
        for place, tensor in enumerate(made):
            identity = self._identities.identity_of(tensor)
            value = self._identities.give(tensor, None if first is None else first.values[place])
            if identity is None or value is None:
                call.first, call.made = None, []
                self._known.pop(call.key, None)
                return
            memory = self._identities.memory_of(tensor)
            call.made.append((memory, len(memory.written)))
            call.values.append(value)
            self._makers[identity] = call
        if first is None:
            self._known[call.key] = call


@dataclass(slots=True)
class _Open:
    """A call that is being made, the tensors that it was given with their versions, and where random numbers were."""

    call: _Call | None
    given: list[Tensor]
    versions: list[int]
    random: list[bytes] | None


def _plain_in(given: Iterable[Any], depth: int = 0) -> Iterator[Tensor]:
    """The tensors in what a call was given or returns."""
    for one in given:
        if is_plain(one):
            yield one
        elif isinstance(one, tuple | list) and depth < _MOST_NESTED:
            yield from _plain_in(one, depth + 1)


def _autocast() -> tuple[object, ...]:
    kinds = ("cpu", "cuda") if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda") else ()
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def _has_tangents() -> bool:
    return getattr(forward_ad, "_current_level", -1) >= 0


def _random_state() -> list[bytes]:
    """Where the generators of random numbers are; read without an operator, as the recording would hold it."""
    generators = [torch.default_generator, *(torch.cuda.default_generators if cuda_is_used() else ())]
    states = [generator.get_state() for generator in generators]
    return [ctypes.string_at(state.data_ptr(), state.nbytes) for state in states]


def _compiler_is_used() -> bool:
    """Whether anything was compiled, or given to the compiler, which counts nothing before the first call; what it is
    told to leave alone has no backend."""
    contexts, utils = (sys.modules.get(f"torch._dynamo.{name}") for name in ("eval_frame", "utils"))
    backends = getattr(contexts, "cached_backends", {}).values()
    return any(backend is not None for backend in backends) or any(getattr(utils, "counters", {}).values())


def _compiler_starts() -> list[Callable[[Any], None]]:
    """What the compiler calls first of all, before it looks at the modes; nobody's where it is not imported or differs.
    To import it would take a second."""
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    calls = getattr(handler, "start_callbacks", None)
    return calls if isinstance(calls, list) else []


def _nobody_notices() -> bool:
    """Whether a mode would change nothing but time."""
    if in_backward_pass() or _count_modes is None or _count_modes() or torch._C._get_tracing_state() is not None:
        return False
    if _compiler_is_used():
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False  # writes from elsewhere change no version
    return not living(*_NOTICING)
