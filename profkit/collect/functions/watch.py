"""The watch: which calls of the program's lines are looked at, and what becomes of their results."""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from profkit.collect.functions.attributes import attributes_read, known_attributes, own_attributes
from profkit.collect.functions.describing import Describer
from profkit.collect.functions.variables import Variables
from profkit.collect.program.clocks import time
from profkit.collect.program.compiled import compiler_is_used
from profkit.collect.program.frames import SUSPENDS, forget_locals, is_at_work, line_of, walk_up
from profkit.collect.program.guard import describe, switches_past_modes, uncompiled
from profkit.collect.sessions.allowance import FUNCTIONS_S
from profkit.collect.sessions.lines import suspended_frames
from profkit.run.directory import CallSite, RepeatedCall
from profkit.source.code import PROFKIT, function_name, source_file, source_line

_EVENT_NS = 450
"""What Python takes for one event with its callback (measured: 300 to 600 ns, the more the more variables)."""
_MOST_NS = int(FUNCTIONS_S * 1e9 / 2)
"""Of each of the two steps."""
_LOOKS, _MOST_LOOKS, _EVERY = 32, 1000, 16
"""Looks at a place in a step before calls are passed by, of which one in so many is looked at. More looks if some call
was repeated: there may be hundreds of different arguments."""
_TRIES = 6
"""Looks at a place without one result that can be compared, after which nothing is expected of it."""
_HELD_BYTES = 64 << 20
"""Of earlier results that are kept alive, to see whether somebody writes into them."""
_MOST_KEPT = 20_000
_MOST_FOUND = 100
"""Places in ``run.json``, those first that take most."""
_PASSING_ON = ("func", "fn", "function", "f")
"""How decorators call the function that they call in turn."""
_DEEP = "repeated calls of functions were looked for until the program recursed as deep as it may"
_DEFINED = (FunctionType, BuiltinFunctionType, ModuleType, type)
_WRAPPERS = frozenset(("decorate_context", "wrapper", "inner", "_fn", "wrapped", "decorated"))
_SPECIAL = frozenset(("__call__", "__getitem__"))
"""The methods with such names whose result is what they are called for."""


@dataclass(slots=True, eq=False)
class _Result:
    """What a call gave: what it holds, how to get it if it still exists, and the step."""

    content: Hashable
    value: Callable[[], Any]
    step: int


@dataclass(slots=True, eq=False)
class _LookedUp:
    """The object that a call gave, and the step."""

    reference: weakref.ref[Any]
    step: int


@dataclass(slots=True, eq=False)
class _Place:
    """A place in the program and a function that it calls. Calls of the two steps are counted separately: those made,
    looked at, equal to one of the same step (``again``) or to one of the step before (``across``). ``differing`` had
    another result, or somebody wrote into it."""

    site: CallSite
    callee: str
    defined: CallSite
    function: FunctionType | None
    reads: frozenset[str] | None
    calls: list[int] = field(default_factory=lambda: [0, 0])
    looked_at: list[int] = field(default_factory=lambda: [0, 0])
    again: list[int] = field(default_factory=lambda: [0, 0])
    across: list[int] = field(default_factory=lambda: [0, 0])
    spent_ns: list[int] = field(default_factory=lambda: [0, 0])
    known: dict[Hashable, _Result] = field(default_factory=dict)
    looked_up: dict[Hashable, _LookedUp] = field(default_factory=dict)
    chosen: set[int] = field(default_factory=set)
    tries: int = 0
    compared: int = 0
    differing: int = 0
    same_objects: int = 0


@dataclass(slots=True)
class _Open:
    """A running call: its arguments as they are (``key``) and by which objects they are (``names``), each None if that
    cannot be told; their addresses; what the object ``expected`` of it held; when it began, with the looks until then.
    """

    place: _Place
    key: Hashable
    names: Hashable
    expected: tuple[Any, Hashable] | None
    given: tuple[int, ...]
    began_ns: int
    looks_ns: int


class FunctionWatch:
    """`begin`, then `end_step` twice. ``found`` is None if nothing could be watched, and ``ended`` says why."""

    def __init__(self, is_user: Mapping[str, bool]) -> None:
        self.found: tuple[RepeatedCall, ...] | None = None
        self.ended = ""
        self.is_on = self._saw_suspending = False
        self._is_user = is_user
        self._thread = self._step = self._events = self._looks_ns = self._before_ns = self._charged_ns = 0
        self._callback: Callable[[FrameType, str, Any], None] = self._on_event
        self._past_functions, self._past_dispatch = switches_past_modes()
        self._forget()

    def _forget(self) -> None:
        self._describer, self._held_bytes, self._kept = Describer(), 0, 0
        self._variables = Variables(self._describer)
        self._places: dict[tuple[int, int, int], tuple[_Place | None, CodeType, CodeType]] = {}
        self._open: dict[int, _Open] = {}

    @property
    def is_installed(self) -> bool:
        return self._thread != 0

    def begin(self) -> None:
        """The located step begins."""
        self.stop()
        self.found, self.ended = None, ""
        self._step = self._events = self._looks_ns = self._before_ns = self._charged_ns = 0
        self._forget()
        if sys.getprofile() is not None or compiler_is_used():
            self.ended = "repeated calls of functions were not looked for, as the program is compiled or profiled"
            return
        self._thread, self.is_on = threading.get_ident(), True
        sys.setprofile(self._callback)

    def end_step(self) -> None:
        """The located step or the one after it is over."""
        if not self.is_installed:
            return
        try:
            self._conclude()
        except Exception as error:
            self._fail(error)
        if self._step == 0 and not self.ended and threading.get_ident() == self._thread:
            self._before_ns, self._step, self._open = self._spent_ns, 1, {}
            self._events = self._looks_ns = 0
            self.is_on = True
            sys.setprofile(self._callback)
        else:
            self.stop()

    @property
    def uncharged_s(self) -> float:
        """The seconds that `take_uncharged_s` would return; any thread may ask."""
        return (self._before_ns + self._spent_ns - self._charged_ns) / 1e9

    def take_uncharged_s(self) -> float:
        """The CPU time that no earlier call of this returned, in seconds."""
        taken_s, self._charged_ns = self.uncharged_s, self._before_ns + self._spent_ns
        return taken_s

    @property
    def _spent_ns(self) -> int:
        return self._looks_ns + self._events * _EVENT_NS

    def stop(self) -> None:
        """Stop watching, and release everything."""
        was_installed, self.is_on = self.is_installed, False
        self._uninstall()
        if was_installed and threading.get_ident() == self._thread:
            self._release_variables()
        self._thread = 0
        self._forget()

    def _uninstall(self) -> None:
        if sys.getprofile() is self._callback:
            sys.setprofile(None)

    def _release_variables(self) -> None:
        """Before Python 3.13 a frame that was looked at keeps a copy of its variables."""
        if is_at_work(sys._getframe()):
            return
        for frame in walk_up(sys._getframe().f_back):
            forget_locals(frame)
        if self._saw_suspending:
            self._saw_suspending = False
            for frame in suspended_frames():
                forget_locals(frame)

    @uncompiled
    def _on_event(self, frame: FrameType, event: str, value: Any) -> None:
        """Python calls this when a function begins or ends, also one of C."""
        try:
            if not self.is_on:
                self._uninstall()
                return
            self._events += 1
            if event == "call":
                caller = frame.f_back
                if caller is not None and self._is_user[caller.f_code.co_filename]:
                    self._enter(frame, caller)
            elif event == "return":
                if self._is_user[frame.f_code.co_filename] and self._variables.is_due(frame.f_code):
                    self._look_at_variables(frame)
                if id(frame) in self._open:
                    self._leave(self._open.pop(id(frame)), value)
            if self._spent_ns > _MOST_NS:
                self.is_on = False
                self._uninstall()
                self._leave_out_open()
        except RecursionError:  # no call is left to say it
            self.is_on, self.ended = False, self.ended or _DEEP
        except Exception as error:  # it would reach the program
            self._fail(error)

    def _leave_out_open(self) -> None:
        """Calls whose end is not seen show nothing, neither that they repeat others nor that they do not."""
        for call in self._open.values():
            call.place.looked_at[self._step] -= 1
        self._open = {}

    def _fail(self, error: Exception) -> None:
        self.ended = self.ended or f"watching for repeated calls of functions failed: {describe(error)}"
        self.is_on = False
        self._uninstall()

    def _enter(self, frame: FrameType, caller: FrameType) -> None:
        code = frame.f_code
        if code.co_flags & SUSPENDS:
            self._saw_suspending = True
            return
        where = id(code), id(caller.f_code), caller.f_lasti  # Python hashes all instructions of a code object anew
        place = self._places[where][0] if where in self._places else self._make(where, frame, caller)
        if place is None:
            return
        place.calls[self._step] += 1
        if (place.tries >= _TRIES and not place.compared) or not self._is_chosen(place):
            return
        begun = time.thread_time_ns()
        place.tries += 1
        with self._past_functions(), self._past_dispatch():
            given = _arguments(frame)
            place.looked_at[self._step] += 1
            key, names = self._key(frame, place, given), self._all(self._describer.identity, given)
            before = place.looked_up.get(names)
            expected = None if before is None or names is None else before.reference()
            held = None if expected is None else (expected, self._argument(expected))
        ended = time.thread_time_ns()
        self._looks_ns += ended - begun
        if key is not None or names is not None:
            self._open[id(frame)] = _Open(place, key, names, held, tuple(map(id, given)), ended, self._looks_ns)

    def _is_chosen(self, place: _Place) -> bool:
        """In the second step, of a place, the calls with the numbers of those in the first: others may be new only as
        they were passed by."""
        number = place.calls[self._step]
        if self._step and place.chosen:
            return number in place.chosen
        looks = _MOST_LOOKS if any(place.again) else _LOOKS
        is_chosen = place.looked_at[self._step] < looks or not number % _EVERY
        if is_chosen and not self._step:
            place.chosen.add(number)
        return is_chosen

    def _key(self, frame: FrameType, place: _Place, given: list[Any]) -> Hashable:
        around = self._all(self._describer.argument, [*given[1:], *_surroundings(frame, place.function)])
        if around is None or not given:
            return around
        read = None if place.reads is None else known_attributes(given[0], place.reads)
        first = self._all(lambda value: self._describer.argument(value, read), given[:1])
        return None if first is None else (first, around)

    def _all(self, describe: Callable[[Any], Hashable], given: list[Any]) -> Hashable:
        try:
            return tuple([describe(value) for value in given])
        except Exception:  # of a library's objects that only look like tensors, too
            return None

    def _argument(self, value: Any) -> Hashable:
        return self._all(self._describer.argument, [value])

    def _make(self, where: tuple[int, int, int], frame: FrameType, caller: FrameType) -> _Place | None:
        """The place, None if calls there are not looked at: of classes' and modules' bodies, of profkit's own code, and
        of methods that are called for what they do."""
        begun, code = time.thread_time_ns(), frame.f_code
        is_special = code.co_name.startswith("__") and code.co_name not in _SPECIAL
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.endswith("comp>")
        place = None
        if is_function and not is_special and not code.co_filename.startswith(PROFKIT):
            line = line_of(caller)
            file = source_file(caller.f_code)
            site = CallSite(file, line, function_name(caller.f_code), source_line(file, line))
            function = _passed_on_to(frame)
            called = code if function is None else function.__code__
            defined = CallSite(source_file(called), called.co_firstlineno, function_name(called), "")
            place = _Place(site, _name(frame, called), defined, function, attributes_read(code))
        self._places[where] = place, code, caller.f_code
        self._looks_ns += time.thread_time_ns() - begun
        return place

    def _leave(self, call: _Open, value: Any) -> None:
        begun, place = time.thread_time_ns(), call.place
        place.spent_ns[self._step] += max(begun - call.began_ns - (self._looks_ns - call.looks_ns), 0)
        if value is not None and id(value) not in call.given:
            with self._past_functions(), self._past_dispatch():
                self._compare(call, value)
        self._looks_ns += time.thread_time_ns() - begun

    def _look_at_variables(self, frame: FrameType) -> None:
        begun = time.thread_time_ns()
        with self._past_functions(), self._past_dispatch():
            self._variables.note_return(frame)
        self._looks_ns += time.thread_time_ns() - begun

    def _compare(self, call: _Open, value: Any) -> None:
        place = call.place
        if call.names is not None and self._look_up(call, value):
            place.compared += 1
            return
        content = None if call.key is None else self._content(value)
        if content is None:
            return
        place.compared += 1
        before = place.known.get(call.key)
        if before is None and self._kept >= _MOST_KEPT:
            return
        self._kept += before is None
        is_equal = before is not None and content == before.content
        place.known[call.key] = _Result(content, self._hold(value) if is_equal else _weakly(value), self._step)
        if before is None:
            return
        if content == before.content and self._is_unwritten(before):
            (place.again if before.step == self._step else place.across)[self._step] += 1
        else:
            place.differing += 1

    def _look_up(self, call: _Open, value: Any) -> bool:
        """Whether the call found the object that it found before, and did nothing to it."""
        place, before = call.place, call.place.looked_up.get(call.names)
        with suppress(TypeError):
            place.looked_up[call.names] = _LookedUp(weakref.ref(value), self._step)
        if before is None:  # new tensors have a graph behind them, what was kept has none
            is_tensor = type(value) is Tensor or type(value) is nn.Parameter
            place.compared += value.is_leaf if is_tensor else True
            return False
        if call.expected is None or call.expected[0] is not value:
            return False
        if call.expected[1] is None or self._argument(value) != call.expected[1]:
            return False
        (place.again if before.step == self._step else place.across)[self._step] += 1
        place.same_objects += 1
        return True

    def _content(self, value: Any) -> Hashable:
        try:
            return self._describer.result(value)
        except Exception:  # as for arguments
            return None

    def _is_unwritten(self, before: _Result) -> bool:
        value = before.value()
        return value is None or self._content(value) == before.content

    def _hold(self, value: Any) -> Callable[[], Any]:
        """Keep a repeated result alive, if there is room and nobody notices, so that it shows whether somebody writes
        into it."""
        size = self._describer.kept_bytes
        if size is None or self._held_bytes + size > _HELD_BYTES:
            return _weakly(value)
        self._held_bytes += size
        return lambda: value

    def _conclude(self) -> None:
        """Keep what the two steps repeat so far."""
        places = [place for place, *_ in self._places.values() if place is not None]
        step = self._step
        with self._past_functions(), self._past_dispatch():
            for place in places:
                if place.again[step] + place.across[step] and not place.same_objects:
                    place.differing += sum(not self._is_unwritten(result) for result in place.known.values())
        there = Counter[tuple[CallSite, CallSite]]()
        for place in places:
            there[place.site, place.defined] += place.calls[step]
        found = [
            _found(place, step, there[place.site, place.defined], is_whole=self.is_on)
            for place in places
            if _repeats(place, step)
        ]
        found += self._variables.found(is_whole=self.is_on)
        self._variables = Variables(self._describer)
        found.sort(key=lambda call: -call.spent_ns)
        if found or not self.found:
            self.found = tuple(found[:_MOST_FOUND])


def _repeats(place: _Place, step: int) -> bool:
    return bool(place.again[step] + place.across[step])


def _found(place: _Place, step: int, there: int, *, is_whole: bool) -> RepeatedCall:
    return RepeatedCall(
        site=place.site,
        callee=place.callee,
        defined=place.defined,
        calls=place.calls[step],
        of_line=there,
        looked_at=place.looked_at[step],
        again=place.again[step],
        across=place.across[step],
        differing=place.differing,
        is_same_object=place.same_objects > 0,
        spent_ns=place.spent_ns[step],
        is_whole=is_whole,
    )


def _arguments(frame: FrameType) -> list[Any]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return [values[name] for name in code.co_varnames[:count] if name in values]


def _surroundings(frame: FrameType, function: FunctionType | None) -> list[Any]:
    """What the function may read besides its arguments: variables around it, and its module's values."""
    code, values = frame.f_code, frame.f_globals
    around = [frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals]
    if function is not None:
        code, values = function.__code__, function.__globals__
    named = [values[name] for name in code.co_names if name in values]
    return [value for value in (*around, *named) if not (issubclass(type(value), _DEFINED) or _is_function_of_c(value))]


def _is_function_of_c(value: Any) -> bool:
    """Such as one of NumPy's: it has no state that can be read."""
    return callable(value) and ((inside := own_attributes(value)) is None or "__wrapped__" in inside)


def _passed_on_to(frame: FrameType) -> FunctionType | None:
    """The function behind a decorator that passes its arguments on."""
    if frame.f_code.co_name in _WRAPPERS:
        for name in _PASSING_ON:
            function = frame.f_locals.get(name)
            if type(function) is FunctionType:
                return function
    return None


def _name(frame: FrameType, called: CodeType) -> str:
    """``Module.get_parameter``, or the class of a module that is called."""
    if called.co_name in ("_wrapped_call_impl", "_call_impl"):
        return type(frame.f_locals.get("self")).__qualname__
    return function_name(called).rpartition("<locals>.")[2]


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None
