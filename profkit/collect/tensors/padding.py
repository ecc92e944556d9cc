"""Which tensors of the batches are padded, and how much.

In the first and the located step, whose times are not used, each batch that a DataLoader gives is looked at, and in the
located step also what enters the outermost modules: by position, by name, in lists, dicts and plain objects. A tensor
on the host is read from its memory, so that no operator runs and the recording does not change. One on a device is only
referred to weakly, and copied after the step if it is still there. Nothing is kept but lengths. In the timed steps
behind the recorded ones, only what was padded is looked at, on the host.

The hook on modules is global, as in `profkit.collect.boundaries.forwards`, and is not installed beside the compiler.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch._C import TensorBase
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from profkit.collect.boundaries.forwards import is_compiler_used
from profkit.collect.loaders.padding_lines import find_padding_lines, site_at
from profkit.collect.program.clocks import time
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.collect.program.guard import Guard, describe, uncompiled
from profkit.collect.sessions.session import is_capturing
from profkit.collect.tensors.further_padding import FurtherBatches
from profkit.collect.tensors.in_memory import MOST_TENSORS, read_bits, tensors_in
from profkit.collect.tensors.padded_inputs import Look, SeenTensor, Source, conclude
from profkit.collect.tensors.padded_rows import layouts_of, measure_rows
from profkit.run.directory import CallSite, PaddedInput

_MOST_NS = 200_000_000
"""CPU time for all looks of one recording, a third of what the watch of calls may take."""
_MOST_CALLS = 2_000
"""Module calls until the hook is removed. Finding out whether one is the outermost takes some microseconds."""
_MOST_LOOKS = 16
"""Batches and calls of outermost modules in one step. Beyond that the calls are those of a loop."""
_MOST_FURTHER_CALLS = 32
"""The same in a timed step: a model's call is among a step's first."""
_ENDED = "padding of the batches was looked at for its {} ms of CPU time, and not further"
_INNER, _OUTER = "inner", "_call_impl"
"""The functions of PyTorch that call a module and its hooks."""


class _Waiting(NamedTuple):
    """A tensor on a device, to be copied after the step."""

    name: str
    tensor: weakref.ref[Tensor]


class PaddingWatch:
    """`begin` when the first or the located step begins, `follow` when a timed step behind the recorded ones does,
    `end_step` when it is over; in between it ``is_begun``. Meanwhile `note_batch` is told each batch. ``found`` is None
    as long as nothing was looked at; ``ended`` says what kept it from looking on."""

    def __init__(self, aside: Callable[[], AbstractContextManager[None]], is_user: Mapping[str, bool], guard: Guard):
        self.ended = ""
        self._aside, self._is_user, self._guard = aside, is_user, guard
        self.is_begun = self._is_on = False
        self._handle: Any = None
        self._thread = self._calls = self._looks = self._spent_ns = self._charged_ns = 0
        self._without: set[int] = set()
        self._seen: list[Look] = []
        self._datasets: set[int] = set()
        self._further: FurtherBatches | None = None
        self._is_following = False
        self._waiting: list[tuple[Source, list[_Waiting]]] = []

    def begin(self, with_modules: bool) -> None:
        """A step begins whose times are not used."""
        self.stop()
        self.is_begun, self._is_on, self._thread = True, not self.ended, threading.get_ident()
        self._calls = self._looks = 0
        self._further, self._is_following = None, False
        if self._is_on and with_modules:
            self._install_hook()

    def follow(self) -> None:
        """A timed step behind the recorded ones begins: of its batches, look at what is known to be padded."""
        if self.ended or not self._seen:
            return
        self.stop()
        if self._further is None:
            self._further = FurtherBatches(tuple(conclude(self._seen)))
        if self._further.are_wanted:
            self.is_begun = self._is_on = self._is_following = True
            self._thread, self._calls, self._looks = threading.get_ident(), 0, 0
            if self._further.enter_modules:
                self._install_hook()

    def _install_hook(self) -> None:
        if not is_compiler_used():
            self._handle = register_module_forward_pre_hook(self._before_call)

    @property
    def must_copy(self) -> bool:
        """Whether `end_step` will copy from a device."""
        return bool(self._waiting)

    def note_batch(self, iterator: _BaseDataLoaderIter) -> None:
        """The iterator of a DataLoader has its batch, which is still a name of its ``__next__``."""
        if not self._may_look():
            return
        wanted = _BaseDataLoaderIter.__next__.__code__
        frame = next((one for one in walk_up(sys._getframe()) if one.f_code is wanted), None)
        if frame is not None:
            batch = frame.f_locals.get("data")
            forget_locals(frame)
            data = id(iterator._dataset)  # of an evaluation's loader, further batches are others
            if not self._is_following:
                self._datasets.add(data)
            if data in self._datasets:
                self._timed(lambda: self._look_at_batch(batch, iterator))

    def end_step(self) -> None:
        """The step is over: copy what lies on a device."""
        waiting, self._waiting = self._waiting, []
        if self._is_following and self._is_on and self._further is not None:
            self._further.miss()
        self.stop()
        self.is_begun = False
        if self.ended or is_capturing():
            return
        for source, tensors in waiting:
            living = [(one.name, tensor) for one in tensors if (tensor := one.tensor()) is not None]
            self._timed(partial(self._measure_copies, living, source))

    def stop(self) -> None:
        """Look at nothing more, until the next `begin`."""
        self._is_on = False
        self._waiting.clear()
        self._remove_hook()

    def _remove_hook(self) -> None:
        self._without.clear()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    @property
    def uncharged_s(self) -> float:
        """The seconds that `take_uncharged_s` would return; any thread may ask."""
        return (self._spent_ns - self._charged_ns) / 1e9

    def take_uncharged_s(self) -> float:
        """The CPU time, in seconds, that no earlier call of this returned."""
        taken_s, self._charged_ns = self.uncharged_s, self._spent_ns
        return taken_s

    @property
    def found(self) -> tuple[PaddedInput, ...] | None:
        """The padded inputs so far."""
        if self._further is not None:
            return tuple(self._further.found())
        return tuple(one.found for one in conclude(self._seen)) if self._seen else None

    def _may_look(self) -> bool:
        return self._is_on and threading.get_ident() == self._thread and self._looks < _MOST_LOOKS

    @uncompiled
    def _before_call(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._may_look():
            frame = sys._getframe(1)
            self._guard(lambda: self._timed(lambda: self._look_at_call(module, arguments, frame)))

    def _look_at_call(self, module: nn.Module, arguments: tuple[Any, ...], frame: FrameType) -> None:
        self._calls += 1
        if self._calls > (_MOST_FURTHER_CALLS if self._is_following else _MOST_CALLS):
            self._remove_hook()
            return
        around = [one for one in walk_up(frame) if one.f_code.co_name in (_INNER, _OUTER)]
        around = [one for one in around if one.f_code.co_filename == nn.Module._call_impl.__code__.co_filename]
        own = [one for one in around[:2] if one is frame or one is frame.f_back]
        outer = [one for one in around if one.f_code.co_name == _OUTER and one not in own]
        if any(id(one) not in self._without for one in outer):
            return
        named = frame.f_locals.get("kwargs")
        forget_locals(frame)
        given = dict(zip(_names_of(module), arguments, strict=False)) | (named if isinstance(named, dict) else {})
        tensors = list(tensors_in(given))
        if tensors:
            caller = next((one for one in walk_up(frame) if self._is_user[one.f_code.co_filename]), None)
            self._look(tensors, Source(_site_of(caller), ()))
        else:
            self._without.update(id(one) for one in own)

    def _look_at_batch(self, batch: Any, iterator: _BaseDataLoaderIter) -> None:
        self._look(list(tensors_in(batch)), Source(None, find_padding_lines(iterator, self._is_user)))

    def _look(self, tensors: list[tuple[str, Tensor]], source: Source) -> None:
        here = [(name, tensor) for name, tensor in tensors if tensor.device.type == "cpu"]
        away = [_Waiting(name, weakref.ref(tensor)) for name, tensor in tensors if tensor.device.type == "cuda"]
        if here or away:
            self._looks += 1
        if self._is_following and self._further is not None:
            if self._further.look(here, source):
                self.stop()
            return
        if away:
            self._waiting.append((source, away))
        self._measure(here, source)

    def _measure(self, tensors: Iterable[tuple[str, Tensor]], source: Source) -> None:
        found = []
        for name, tensor in tensors:
            shape, is_integer = tuple(tensor.shape), not tensor.dtype.is_floating_point
            bits = read_bits(tensor)
            layouts = layouts_of(shape) if bits is not None else ()
            measured = {layout: measure_rows(bits, is_integer, layout) for layout in layouts if bits is not None}
            found.append(SeenTensor(name, shape, {at: rows for at, rows in measured.items() if rows is not None}))
        if found:
            self._seen.append((source, found))

    def _measure_copies(self, tensors: list[tuple[str, Tensor]], source: Source) -> None:
        self._measure(((name, TensorBase.cpu(TensorBase.detach(tensor))) for name, tensor in tensors), source)

    def _timed(self, action: Callable[[], None]) -> None:
        begun_ns = time.thread_time_ns()
        try:
            with self._aside():
                action()
        except Exception as error:
            self.ended = f"padding of the batches was not looked at: {describe(error)}"
            self.stop()
        finally:
            spent_ns = time.thread_time_ns() - begun_ns
            self._spent_ns += spent_ns
            if self._is_following and self._further is not None:
                self._further.charge(spent_ns)
        if self._spent_ns > _MOST_NS and not self.ended:
            self.ended = _ENDED.format(_MOST_NS // 1_000_000)
            self.stop()


def _names_of(module: nn.Module) -> Iterator[str]:
    """The names of what its ``forward`` takes by position; numbers from there on."""
    forward = getattr(type(module), "forward", None)
    if isinstance(forward, FunctionType):
        code = forward.__code__
        yield from code.co_varnames[1 : code.co_argcount]
    yield from (f"argument {number}" for number in range(MOST_TENSORS))


def _site_of(frame: FrameType | None) -> CallSite | None:
    return None if frame is None else site_at(frame.f_code, frame.f_lineno)
