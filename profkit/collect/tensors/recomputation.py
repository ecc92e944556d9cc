"""Which calls of PyTorch repeat an earlier one with the same arguments.

During the located step and the one after it a function mode sees each of Python's calls of PyTorch, above autograd. A
call is identified by its function, its numbers and options, the values of its tensors
(`profkit.collect.tensors.identities`) and the modes that it runs in. Equal calls have equal results, unless they draw
random numbers. An event surrounds each call of the located step, so that the trace shows its cost and its line.
Backward passes are left out, because they recompute activations on purpose. Of a step with many calls, those at places
where nothing is repeated are only sampled (`profkit.collect.tensors.sampling`).

If the program might notice the mode, nothing is watched: PyTorch's own transformer layers take another path under a
mode, and the compiler would compile again, or fail if it must compile one whole graph.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import EllipsisType, FrameType
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn, overrides
from torch._C import TensorBase
from torch.autograd import forward_ad

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.clocks import time
from profkit.collect.program.compiled import compiler_is_used
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import switches_past_modes, uncompiled
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.program.living import living
from profkit.collect.sessions.host_marks import open_mark
from profkit.collect.tensors.askers import asking
from profkit.collect.tensors.call_budget import NOTICED, CallBudget
from profkit.collect.tensors.denormals import InputWatch
from profkit.collect.tensors.flow import FlowWatch
from profkit.collect.tensors.identities import Identities, Identity, Memory, is_plain
from profkit.collect.tensors.matrix_forms import FormWatch
from profkit.collect.tensors.sampling import PASSED_NS, CallSampling
from profkit.collect.tensors.shared_rows import RowWatch
from profkit.collect.tensors.sparse_factors import FactorWatch
from profkit.collect.tensors.unread import UnreadResults
from profkit.collect.tensors.zeroed import ZeroedResults
from profkit.core.marks import CALL_MARK
from profkit.run.directory import DataFlow, DenormalTensors, MatrixForm, Recomputation, SharedRows, SparseFactor

_SOON_S, _MOST_TRIES = 0.002, 1000
"""How often, and how many times, a mode that is in use asks to leave."""
_MOST_GIVEN = 64
"""Elements of a list argument: a longer list is data, which would be expensive to compare."""
_MOST_NESTED = 3
_PASSED_BY = ("__get__", "__set__", "__delete__")
"""Accesses to properties: reading a tensor's shape is a call too."""
_OPENS_RANGE = "_record_function_"
"""Calls that begin and end a range in the recording. An event around the call would overlap the range."""
_ENDS_GRAPH = ("backward", "grad")
"""Calls that free a graph: the next backward pass needs a new one."""
_SHARES = ("numpy", "__array__", "__dlpack__", "data_ptr", "share_memory_", "values", "_values", "indices", "_indices")
"""Calls that let other code than PyTorch write to a tensor."""
_WRITING_OPTIONS = frozenset(("inplace", "out"))
_PLAIN = (int, bool, str, type(None), EllipsisType, torch.dtype, torch.device, torch.layout, torch.memory_format)
_NOTICING = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""In evaluation mode these take a fast path, but not under a function mode."""
_push: Callable[[Any], None] | None = getattr(overrides, "_push_mode", None)
_pop: Callable[[], Any] | None = getattr(overrides, "_pop_mode", None)
_count_modes: Callable[[], int] | None = getattr(overrides, "_len_torch_function_stack", None)
"""These are private; without them nothing is watched."""
_LOOKS_FOR_MODES = frozenset(
    (
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "handle_torch_function",
        "_is_torch_function_mode_enabled",
    )
)
"""A Python function that a mode may take over calls these first. It fails if the mode is removed right after."""
_BETWEEN = ("profkit", "torch", "contextlib")
"""Packages whose functions may run between such a function and profkit's own code."""


class _Unidentified(Exception):
    """An argument that cannot be identified."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call that may repeat another, its ``first``. It ``is_known`` if all calls before it were looked at. ``made`` is
    the memory of its results, with the number of writes by then, and ``values`` what the results hold. ``users`` are
    the calls that took its results."""

    number: int
    step: int
    key: Hashable
    has_tensors: bool
    is_known: bool = True
    first: _Call | None = None
    made: list[tuple[Memory, int]] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    users: list[_Call | None] = field(default_factory=list)

    @property
    def is_needless(self) -> bool:
        """Whether the first call's results would do, because the same has been written into both since. A call without
        tensors is only needless if its users are too: a program may want two buffers of zeros."""
        first = self.first
        is_used_again = self.is_known and self.users and all(one and one.first for one in self.users)
        if first is None or not (self.has_tensors or is_used_again):
            return False
        if len(self.made) != len(first.made):  # the watch ended while it ran
            return False
        for (mine, mine_before), (other, before) in zip(self.made, first.made, strict=True):
            since = mine.written[mine_before:]
            if mine is not other and not (all(since) and len(since) == len(other.written) - before):
                return False
        return bool(self.made)


class CallWatch(overrides.TorchFunctionMode):
    """`begin`, then `end_step` twice. ``found`` is None if nothing could be watched, and ``budget`` says why.
    ``denormals`` are tensors that the located step's calls took (`profkit.collect.tensors.denormals`).
    `take_spent_ns` returns the CPU time spent on watching since its last call."""

    def __init__(self) -> None:
        self.found: Recomputation | None = None
        self.denormals: tuple[DenormalTensors, ...] = ()
        self._followed: DataFlow | None = None
        self.budget = CallBudget()
        self.sampling = CallSampling()
        self.is_on = self._is_aside = False
        self._thread = self._step = self._graphs = self._begun_ns = 0
        self._past_functions, self._past_dispatch = switches_past_modes()
        self._departure = MainThreadCall(self._depart)
        self._asker: threading.Thread | None = None
        self._calls: list[_Call] = []
        self._forget()

    def _forget(self) -> None:
        """Release everything now. Where profkit is called while Python frees an object, Python puts off a long chain of
        others until the program runs again: 10,000 calls took 7 ms of the first measured step."""
        for call in self._calls:
            call.users.clear()
        self._identities = Identities()
        self._known: dict[Hashable, _Call] = {}
        self._makers: dict[Identity, _Call] = {}
        self._calls = []
        self._zeroed, self._unread, self._flow = ZeroedResults(), UnreadResults(), FlowWatch()
        self._rows, self._factors, self._forms, self._inputs = RowWatch(), FactorWatch(), FormWatch(), InputWatch()

    @property
    def flow(self) -> DataFlow | None:
        """The data flow of the first of the two steps, as far as it was watched."""
        return self._followed or self._flow.found

    @property
    def is_installed(self) -> bool:
        return self._thread != 0

    def begin(self) -> None:
        """The located step begins. Watch it, unless the program would notice the mode."""
        self.stop()
        self.found, self._followed, self.budget, self.sampling = None, None, CallBudget(), CallSampling()
        self.denormals = ()
        if _push is not None and not self.is_installed and _is_unnoticed():
            self._step = self._graphs = self._begun_ns = 0
            self._thread, self.is_on = threading.get_ident(), True
            _compiler_starts().append(self._make_way)
            _push(self)
        else:
            self.budget.end(NOTICED)

    def end_step(self) -> None:
        """The located step or the one after it is over."""
        if not self.is_on:
            self.stop()
            return
        self._conclude()
        if self._step == 0:
            if self.found is not None and not self.sampling.is_on and not cuda_is_used():
                zeroed, unread = self._zeroed.conclude(self._users_of), self._unread.conclude()
                self.found = replace(self.found, zeroed=zeroed, unread=unread)
            self._step, self._begun_ns = 1, self.budget.all_ns
        else:
            self.stop()

    def _conclude(self) -> None:
        """Keep what this step's calls repeat so far."""
        needless = [call for call in self._calls if call.is_needless and call.step == self._step]
        if self._step == 0:
            pairs = [(call.number, call.first.number) for call in needless if call.first]
            rows, sparse = self._of_numbers()
            self.found = Recomputation(
                again=tuple(pairs), looked_at=len(self._calls), rows=rows, sparse=sparse, forms=self._of_matrices()
            )
            self._followed, self.denormals = self._flow.found, self._inputs.found
        else:
            across = {call.first.number for call in needless if call.first and call.first.step < self._step}
            self.found = replace(self.found or Recomputation(), each_step=tuple(sorted(across)))

    def _of_numbers(self) -> tuple[tuple[SharedRows, ...] | None, tuple[SparseFactor, ...] | None]:
        """What the numbers in tensors show holds whatever else the step calls. Only that there is none needs all."""
        rows, sparse = tuple(self._rows.found), tuple(self._factors.found)
        if cuda_is_used():
            return None, None
        is_whole = self.is_on and not self.sampling.is_on and not self.budget.ended
        return (rows, sparse) if is_whole else (rows or None, sparse or None)

    def _of_matrices(self) -> tuple[MatrixForm, ...] | None:
        """A call that was passed by may be of no form, so all of them must be seen."""
        is_whole = self.is_on and not self.sampling.is_on and not self.budget.ended
        return tuple(self._forms.found) if is_whole and not cuda_is_used() else None

    def _users_of(self, number: int) -> list[int | None]:
        return [None if user is None else user.number for user in self._calls[number].users]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Calls made inside are not the program's, and the time is not the watch's, whose look it may interrupt."""
        before, self._is_aside = self._is_aside, True
        begun, budget = self.budget.begin(), None if before or threading.get_ident() != self._thread else self.budget
        try:
            yield
        finally:
            self._is_aside = before
            if budget is not None:
                budget.leave_out(begun)

    def seen(self) -> tuple[int, bool]:
        """How many calls of PyTorch were seen, and whether more are; any thread may ask."""
        return self.budget.seen, self.is_on

    def take_spent_ns(self) -> int:
        return self.budget.take_spent_ns()

    @property
    def uncharged_s(self) -> float:
        return self.budget.uncharged_s

    def take_uncharged_s(self) -> float:
        return self.budget.take_uncharged_s()

    def stop(self) -> None:
        """Stop watching, and release everything."""
        self.is_on = False
        self._forget()
        is_mine = self.is_installed and threading.get_ident() == self._thread
        if is_mine and not self._leave(sys._getframe()):  # during a call the mode is off the stack: it returns after it
            if threading.current_thread() is threading.main_thread():
                self._depart_soon()
            elif sys.gettrace() is None:
                sys.settrace(self._leave_later)

    def _depart_soon(self) -> None:
        """A mode that only passes calls on costs 4 µs a call: in a loop of a million operators as much as profkit may
        cost in all. Such a loop calls no function of Python. To ask for the next bytecode from here would stop within
        this very call, so another thread asks."""
        if self._asker is None or not self._asker.is_alive():
            self._asker = threading.Thread(target=self._ask, name="profkit-departure", daemon=True)
            with suppress(RuntimeError):  # no thread can start: the end of the step asks once more
                self._asker.start()

    def _ask(self) -> None:
        for _ in range(_MOST_TRIES):
            time.sleep(_SOON_S)
            if self.is_on or not self.is_installed:
                return
            self._departure.request()

    def _depart(self) -> None:
        with suppress(Exception):
            if self.is_installed and not self.is_on:
                self._leave(sys._getframe())

    def _make_way(self, _compiled: Any) -> None:
        """The compiler starts. It cannot trace the mode."""
        with suppress(Exception):
            self.budget.end(NOTICED)
            self.stop()

    def _leave(self, frame: FrameType) -> bool:
        """Take the mode off the stack, wherever it lies among the program's own. Returns False, and does nothing, if a
        function of PyTorch may have seen it there and be about to call it."""
        if _push is None or _pop is None or _count_modes is None:
            return True
        if _is_about_to_ask(frame):
            return False
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

    def _leave_later(self, frame: FrameType, _event: str, _argument: Any) -> None:
        """Python calls this at the next function call outside the mode."""
        with suppress(Exception):
            if self._leave(frame):
                sys.settrace(None)

    @uncompiled
    def __torch_function__(
        self, function: Any, _types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        name = getattr(function, "__name__", "")
        is_passed_by = name in _PASSED_BY or name.startswith(_OPENS_RANGE)
        if not self.is_on or self._is_aside or is_passed_by or in_backward_pass():
            return asking(function, sys._getframe(1))(*arguments, **named)
        self.budget.seen += 1
        self.sampling.look(self.budget.all_ns - self._begun_ns)
        if self.sampling.passes_by(function, name, named, sys._getframe(1)) and name not in (*_ENDS_GRAPH, *_SHARES):
            self._flow.stop()
            if not self.budget.pass_by(PASSED_NS):
                self._end_early()
            return asking(function, sys._getframe(1))(*arguments, **named)
        with self._past_functions(), self._past_dispatch():
            call = self._open(function, name, arguments, named, is_update=_updates(sys._getframe(1)))
        function = asking(function, sys._getframe(1))
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
        with self._past_functions(), self._past_dispatch():
            self._close(call, result)
        return result

    def _open(
        self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], *, is_update: bool
    ) -> _Open | None:
        """What is known about a call before it runs; None if that failed, which ends the watch."""
        begun = self.budget.begin()
        try:
            return self._look_at(function, name, arguments, named, is_update)
        except Exception as error:  # for example a library's mode with objects that only look like tensors
            self.stop()
            self.budget.fail(error)
            return None
        finally:
            self._spend(begun)

    def _close(self, opened: _Open, result: Any) -> None:
        begun = self.budget.begin()
        try:
            self._keep(opened, result)
        except Exception as error:
            self.stop()
            self.budget.fail(error)
        finally:
            self._spend(begun)

    def _spend(self, begun: int) -> None:
        if not self.budget.spend(begun, len(self._calls), len(self._identities)):
            self._end_early()

    def _end_early(self) -> None:
        """The budget is used. What was found in the part of the step that was seen is kept."""
        if self.is_on:
            self._conclude()
            known = self.found
            if known is not None and not any((known.again, known.each_step, known.zeroed, known.unread)):
                self.found = known if known.rows or known.sparse else None
        self.stop()

    def _look_at(
        self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], is_update: bool
    ) -> _Open:
        every = list(_tensors_in((arguments, tuple(named.values()))))
        given = [tensor for tensor in every if is_plain(tensor)]
        self._identities.look_again(given)
        if name in _ENDS_GRAPH:
            self._graphs += 1
            self._unread.begin_backward()
        if name in _SHARES:
            for tensor in given:
                self._identities.memory_of(tensor).is_shared = True
        makers = {maker for tensor in given if (maker := self._maker_of(tensor)) is not None}
        call = None if is_update else self._recognise(function, name, arguments, named, given)
        for maker in makers:
            maker.users.append(call)
        memories = [self._identities.memory_of(tensor) for tensor in given] if self._step == 0 else []
        if self._step == 0:
            self._inputs.note(given)
            self._flow.begin(name, call is not None, [*zip(memories, given, strict=True)], len(given) == len(every))
            self._unread.take(None if call is None else call.number, name, memories)
            if call is not None:
                self._zeroed.note(call.number, name, given, self._number_of_maker, named)
                self._forms.note(call.number, name, given)
                is_whole = not self.sampling.is_on
                self._factors.note(call.number, name, [*zip(memories, given, strict=True)], is_whole=is_whole)
                if call.first is None and len(given) > 1:
                    weights = tuple([self._identities.identity_of(tensor) for tensor in given[1:]])
                    if None not in weights:
                        self._rows.note(call.number, name, given, (weights, self._graphs))
        random = _random_state() if call is not None and call.first is not None else None
        versions = [*map(self._identities.version_of, given)]
        return _Open(name, call, given, memories, versions, random, _may_write(name, named))

    def _number_of_maker(self, tensor: Tensor) -> int | None:
        maker = self._maker_of(tensor)
        return None if maker is None else maker.number

    def _maker_of(self, tensor: Tensor) -> _Call | None:
        identity = self._identities.identity_of(tensor)
        return None if identity is None else self._makers.get(identity)

    def _recognise(
        self, function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], given: list[Tensor]
    ) -> _Call | None:
        if "empty" in name or name in _ENDS_GRAPH or name in _SHARES or _has_tangents():
            return None  # fresh memory may hold anything
        try:
            described = self._describe(arguments), tuple((key, self._describe(one)) for key, one in named.items())
        except _Unidentified:
            return None
        differentiates = torch.is_grad_enabled()
        graph = self._graphs if differentiates and any(tensor.requires_grad for tensor in given) else None
        key = (function, *described, differentiates, graph, torch.get_default_dtype(), *_autocast())
        first = self._known.get(key)
        if first is not None and not all(map(self._identities.is_unchanged, given)):
            return None
        call = _Call(len(self._calls), self._step, key, bool(given), not self.sampling.is_on, first)
        self._calls.append(call)
        self.sampling.note(first is not None)
        return call

    def _describe(self, value: Any) -> Hashable:
        """Everything that can affect the result. Raises `_Unidentified`."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind is float:
            return kind, value.hex()
        if kind is slice:
            return kind, self._describe((value.start, value.stop, value.step))
        if kind in (tuple, list, torch.Size) and len(value) <= _MOST_GIVEN:
            return kind, tuple([self._describe(one) for one in value])
        if kind in (tuple, list) and all(one is value[0] for one in value):
            return kind, len(value), self._describe(value[0])
        known = self._identities.value_of(value) if is_plain(value) else None
        if known is None:
            raise _Unidentified
        return kind, known, value.requires_grad, value.device

    def _keep(self, opened: _Open, result: Any) -> None:
        call = opened.call
        if call is not None and call.first is not None and opened.random != _random_state():
            self._known.pop(call.key, None)
            call.first = None
        is_again = call is not None and call.first is not None
        version_of = self._identities.version_of
        self._identities.look_again(opened.given, may_be_written=opened.may_write)
        written = [
            tensor
            for tensor, version in zip(opened.given, opened.versions, strict=True)
            if version_of(tensor) != version
        ]
        of_written = {self._identities.memory_of(tensor) for tensor in written}
        for memory in of_written:
            memory.written.append(is_again)
        results = [*_plain_in((result,))]
        self._identities.look_again(results)
        made = [*results, *written]
        if self._step == 0:
            self._keep_flow(opened, made, of_written)
            self._factors.note_results(opened.name, opened.memories, [*map(self._identities.memory_of, made)])
        if call is not None:
            self._give_values(call, made)
            if self._step == 0:
                self._zeroed.note_results(call.number, made)
                shapes = [tuple(tensor.shape) for tensor in made]
                self._unread.make(call.number, [memory for memory, _ in call.made], shapes, bool(written))

    def _keep_flow(self, opened: _Open, made: list[Tensor], written: set[Memory]) -> None:
        memory_of = self._identities.memory_of
        with_memory = [(memory_of(tensor), tensor) for tensor in made]
        self._flow.end(
            opened.name, opened.memories, [(memory, tensor, memory in written) for memory, tensor in with_memory]
        )

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
    """A running call, the name of its function, its tensors with their memories (in the located step) and versions,
    the random number generators' state before it, and whether it is one that may write into what it is given."""

    name: str
    call: _Call | None
    given: list[Tensor]
    memories: list[Memory]
    versions: list[int]
    random: list[bytes] | None
    may_write: bool


def _may_write(name: str, named: Mapping[str, Any]) -> bool:
    """Whether its name or its options say that a call writes into a tensor that it is given: `add_`, `__iadd__`."""
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name.startswith("__i") or name == "__setitem__" or not _WRITING_OPTIONS.isdisjoint(named)


def _plain_in(given: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in a call's arguments or result that can be followed."""
    return filter(is_plain, _tensors_in(given))


def _tensors_in(given: Iterable[Any], depth: int = 0) -> Iterator[Tensor]:
    for one in given:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, tuple | list) and depth < _MOST_NESTED:
            yield from _tensors_in(one, depth + 1)


def _autocast() -> tuple[object, ...]:
    kinds = ("cpu", "cuda") if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda") else ()
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def _has_tangents() -> bool:
    return getattr(forward_ad, "_current_level", -1) >= 0


def _random_state() -> list[bytes]:
    """The random number generators' states, read without an operator, which would be recorded."""
    generators = [torch.default_generator, *(torch.cuda.default_generators if cuda_is_used() else ())]
    states = [generator.get_state() for generator in generators]
    return [ctypes.string_at(TensorBase.data_ptr(state), state.nbytes) for state in states]


def _compiler_starts() -> list[Callable[[Any], None]]:
    """The compiler's callbacks at its start, before it looks at the modes. An unused list if the compiler has none or
    is not imported: importing it would take a second."""
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    calls = getattr(handler, "start_callbacks", None)
    return calls if isinstance(calls, list) else []


def _is_about_to_ask(frame: FrameType | None) -> bool:
    """Whether profkit's code interrupts a function that looks for modes, or one that PyTorch calls for it."""
    is_between = True
    while frame is not None and is_between:
        if not _LOOKS_FOR_MODES.isdisjoint(frame.f_code.co_names):
            return True
        is_between = str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN
        frame = frame.f_back
    return False


def _updates(frame: FrameType) -> bool:
    """Whether an optimizer of PyTorch calls: no update repeats another, and a step may have hundreds of its calls.
    Clearing gradients is none."""
    return str(frame.f_globals.get("__name__")).startswith("torch.optim.") and frame.f_code.co_name != "zero_grad"


def _is_unnoticed() -> bool:
    """Whether a mode would change nothing except the time."""
    if in_backward_pass() or _count_modes is None or _count_modes() or torch._C._get_tracing_state() is not None:
        return False
    if compiler_is_used():
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False  # other processes write without changing a version
    return not living(*_NOTICING)
