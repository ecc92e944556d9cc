"""What becomes of the gradients of one step: which an optimizer uses, and which are thrown away unread.

At each optimizer step, and at both ends of the located step and of the one after it, every parameter's ``.grad`` is
checked: the address of its header shows whether it is still the same tensor, and its version whether it was written to.
A gradient was thrown away if it grew and is then replaced without a step of the parameter's optimizer in between. The
located step's operators show whether anything read it, because their inputs are recorded with their memory. Headers are
kept while gradients are compared, so that no address is reused; the memory is freed as usual.

What is gone before the next look, such as the weights' gradients of an attack on the inputs, the operators alone show:
the memory that a gradient was stored in or added to was freed before any operator took it.

The operators are only searched if some gradient was left over or thrown away, or if more were added than are left,
which is rare.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._C import TensorBase
from torch.nn import Parameter
from torch.optim.optimizer import Optimizer

from profkit.collect.program.guard import uncompiled
from profkit.collect.program.living import living
from profkit.collect.sessions.counting import ACCUMULATES, Counted
from profkit.collect.sessions.session import ProfilerSession
from profkit.run.directory import GradientUse
from profkit.source.attributes import attributes_of

_MOST_PARAMETERS = 20_000
"""Checking one takes half a microsecond."""
_MOST_OPERATORS = 200_000
"""Searching one takes about three microseconds."""
_STEP = "Optimizer.step#"
_ADDS = "aten::add_"
_PASSES_ON = ("aten::detach", "detach")
"""What stores a gradient as it is. Anything else in that node copies it."""
_OLD = "gradients were not followed: this PyTorch has no weak references to tensors (use another release)"
_ELSEWHERE = (
    "gradients were not followed: an optimizer stepped on a thread that is not recorded (put `with profkit.profile():` "
    "into that thread's function)"
)
_CUT_OFF = (
    "gradients were not followed: an exception or the end of the recording cut an optimizer's step off (record another "
    "step, --at-step N)"
)
_keep_header: Callable[[Tensor], Any] | None = getattr(torch._C, "_WeakTensorRef", None)
"""A weak reference that keeps a tensor's header but not its memory. It is private; without it nothing is watched."""


class GradientWatch:
    """`begin`, `look` after each optimizer step, `read` the recording of the located step when it is over, and `finish`
    a step later. ``use`` is None if nothing could be watched; if there was something, ``ended`` says why not. The
    checks run ``aside`` from other watches."""

    def __init__(self, aside: Callable[[], AbstractContextManager[None]]) -> None:
        self.use: GradientUse | None = None
        self.ended = ""
        self._aside = aside
        self.is_on = False
        self._followed: list[_Followed] = []
        self._freed: tuple[int, ...] = ()
        self._are_all_plain = False
        self._looks = self._thread = 0

    def begin(self) -> None:
        self._followed, self._are_all_plain = _follow()
        self.use, self._looks, self._freed = None, 0, ()
        self._thread = threading.get_ident()
        self.ended = _OLD if _keep_header is None else ""
        if len(self._followed) > _MOST_PARAMETERS:
            self.ended = _many(len(self._followed))
        self.is_on = bool(self._followed) and not self.ended

    @uncompiled
    def look(self, optimizer: Optimizer) -> None:
        """An optimizer step ends."""
        if not self.is_on:
            return
        if threading.get_ident() != self._thread:
            self._end(_ELSEWHERE)
            return
        with self._aside():
            self._looks += 1
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            for one in self._followed:
                one.look(self._looks, held)

    def read(self, recording: ProfilerSession, counted: Counted) -> None:
        """The located step is over: find which of its operators added to the gradients, and which read them."""
        if not self.is_on:
            return
        left = sum(bool(one.tensor) for one in self._followed)
        operators = counted.events
        if counted.gradients_added > left or any(one.waiting for one in self._followed):
            seen = _Seen.of(recording.events() if operators <= _MOST_OPERATORS else ())
            if len(seen.steps) != self._looks:
                self._end(_dense(operators) if operators > _MOST_OPERATORS else _CUT_OFF)
                return
            for one in self._followed:
                one.find(seen)
            self._freed = tuple(seen.freed_unread()) if self._are_all_plain else ()
        for one in self._followed:
            one.grew = False  # in the recorded step

    def finish(self) -> None:
        """The step after the located one is over."""
        if not self.is_on:
            return
        for one in self._followed:
            one.look(self._looks + 1, set())
        taken = {number for one in self._followed for added in one.taken for number in added.numbers}
        dropped = {number for one in self._followed if one.is_held for number in one.unused}
        self.use = GradientUse(
            taken=_sorted(taken),
            thrown_away=_sorted(dropped.union(self._freed) - taken),
            unheld=_sorted(number for one in self._followed if not one.is_held for number in one.unused),
        )
        self.stop()

    def _end(self, why: str) -> None:
        self.ended = why
        self.stop()

    def stop(self) -> None:
        """Stop watching, and release everything."""
        self.is_on = False
        self._followed = []


def _many(parameters: int) -> str:
    return (
        f"gradients were not followed: {parameters:,} parameters are alive, and at most {_MOST_PARAMETERS:,} can be "
        "(record a part of the model)"
    )


def _dense(operators: int) -> str:
    return (
        f"gradients were not followed: the located step has {operators:,} operators, and at most {_MOST_OPERATORS:,} "
        "are searched (record a shorter step, --at-step N)"
    )


@dataclass(slots=True)
class _Added:
    """What was added to a gradient between the looks ``after`` and ``until``: the gradient's tensor and memory, the
    numbers of the nodes that added it, and whether it was read in the located step. One that ``was_there`` at the first
    look can only have grown in place: what is handed over later at its address is another parameter's gradient."""

    tensor: int
    memory: int
    after: int
    until: int
    was_there: bool = False
    numbers: tuple[int, ...] = ()
    is_read: bool = False


@dataclass(slots=True)
class _Followed:
    """One parameter and its gradient. ``tensor`` is the gradient at the last look, in ``memory``; ``first_memory`` is
    that of the first gradient. ``waiting`` was added since the parameter's last update, ``taken`` was used by an
    optimizer step, ``dropped`` was thrown away before one. ``grew``: something was added during the located step or,
    later, since it.
    """

    parameter: weakref.ref[Tensor]
    value: int
    is_held: bool
    tensor: int = 0
    version: int = 0
    memory: int = 0
    first_memory: int = 0
    headers: list[Any] = field(default_factory=list)
    updated: int = 0
    waiting: list[_Added] = field(default_factory=list)
    taken: list[_Added] = field(default_factory=list)
    dropped: list[_Added] = field(default_factory=list)
    grew: bool = False

    def look(self, number: int, held: set[int]) -> None:
        parameter = self.parameter()
        if parameter is None:
            self.waiting = []
            return
        gradient = _plain_gradient(parameter)
        is_same = gradient is not None and gradient._cdata == self.tensor
        is_mine = id(parameter) in held
        if not is_same:
            self.dropped += self.waiting if gradient is not None or not is_mine else []
            if self.tensor and not self.waiting:  # it may have grown, used up as it was, before it was cleared
                self.dropped.append(_Added(self.tensor, self.memory, self.updated, number, was_there=True))
            self.waiting = []
        if gradient is not None and not (is_same and gradient._version == self.version):
            self.grew = True
            self.waiting = self.waiting or [_Added(gradient._cdata, _memory_of(gradient), self.updated, number)]
            self.waiting[0].until = number
        if is_mine:
            self.taken += self.waiting
            self.waiting = []
            self.updated, self.is_held = number, True
        self.remember(gradient)

    def remember(self, gradient: Tensor | None) -> None:
        self.tensor = self.version = self.memory = 0
        if gradient is not None and _keep_header is not None:
            self.headers.append(_keep_header(gradient))
            self.tensor, self.version = gradient._cdata, gradient._version
            self.memory = _memory_of(gradient)

    def find(self, seen: _Seen) -> None:
        for added in (*self.waiting, *self.taken, *self.dropped):
            seen.find(added, self.first_memory)

    @property
    def unused(self) -> Iterator[int]:
        """The nodes whose work was not used: thrown away or, if no optimizer holds the parameter, still waiting while
        the next step adds more.

        A parameter that changes without an optimizer may be updated by hand, from its gradient. It is not if its first
        gradient keeps growing, unread and uncleared, as for a moving average of another parameter."""
        parameter = self.parameter()
        if self.is_held:
            chosen = self.dropped
        elif parameter is None:
            return
        else:
            lying = self.waiting if self.grew else []
            if parameter._version == self.value:
                chosen = self.dropped + lying
            else:
                chosen = [] if self.dropped else [added for added in lying if added.memory == self.first_memory]
        for added in chosen:
            if not added.is_read:
                yield from added.numbers


@dataclass(slots=True)
class _Seen:
    """What the events of a recording show: begin and end of each optimizer step, by end; the nodes that add to a
    gradient, by start; for each memory address, when it was an operator's input, when it was allocated and when freed.
    """

    steps: list[tuple[int, int]] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)
    used_ns: dict[int, list[int]] = field(default_factory=dict)
    allocated_ns: dict[int, list[int]] = field(default_factory=dict)
    freed_ns: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, roots: Iterable[Any]) -> _Seen:
        seen, waiting = cls(), [(root, False) for root in roots]
        kinds = torch._C._profiler._EventType
        while waiting:
            event, is_adding = waiting.pop()
            children = event.children
            if event.tag == kinds.TorchOp:
                seen._note(event, children, is_adding)
                is_adding = is_adding or event.name == ACCUMULATES
            elif event.tag == kinds.Allocation:
                times = seen.allocated_ns if event.typed[1].alloc_size > 0 else seen.freed_ns
                times.setdefault(event.typed[1].ptr, []).append(event.start_time_ns)
            waiting += [(child, is_adding) for child in children]
        seen.steps.sort(key=lambda step: step[1])
        seen.nodes.sort(key=lambda node: node.start_ns)
        return seen

    def _note(self, event: Any, children: Iterable[Any], is_adding: bool) -> None:
        name, start_ns = event.name, event.start_time_ns
        if name.startswith(_STEP):
            self.steps.append((start_ns, event.end_time_ns))
        elif name == ACCUMULATES:
            grown = next((one for child in children if child.name == _ADDS for one in _tensors_in(child)), None)
            memory = next((one.storage_data_ptr for one in _tensors_in(event)), 0)
            is_handed_over = all(child.name in _PASSES_ON for child in children)
            stored = memory if is_handed_over else 0 if grown is None else grown.storage_data_ptr
            target = 0 if grown is None else grown.impl_ptr
            self.nodes.append(_Node(start_ns, event.end_time_ns, target, memory, stored))
        elif not is_adding:
            for tensor in _tensors_in(event):
                self.used_ns.setdefault(tensor.storage_data_ptr, []).append(start_ns)

    def find(self, added: _Added, first_memory: int) -> None:
        """Find which nodes added this, and whether anything read it afterwards, or read the parameter's first gradient
        (in ``first_memory``) at any time."""
        begin_ns = self.steps[added.after - 1][1] if added.after else 0
        end_ns = self.steps[added.until - 1][0]
        numbers: list[int] = []
        for number, node in enumerate(self.nodes):
            if begin_ns <= node.start_ns < end_ns:
                is_handed_over = not (node.target or added.was_there) and node.memory == added.memory != 0
                if is_handed_over:  # whatever used it before computed it, or was another gradient in the same place
                    begin_ns, numbers = node.end_ns, []
                if is_handed_over or node.target == added.tensor:
                    numbers.append(number)
        added.numbers = tuple(numbers)
        added.is_read = self._is_used(added.memory, begin_ns) or self._is_used(first_memory, 0)

    def freed_unread(self) -> Iterator[int]:
        """The nodes whose gradient's memory was freed in the recording before any operator took it."""
        for number, node in enumerate(self.nodes):
            memory, since_ns = node.stored, node.end_ns
            freed_ns = min((at_ns for at_ns in self.freed_ns.get(memory, ()) if at_ns >= since_ns), default=None)
            if not memory or freed_ns is None:
                continue
            if not any(since_ns <= at_ns < freed_ns for at_ns in self.used_ns.get(memory, ())):
                yield number

    def _is_used(self, memory: int, since_ns: int) -> bool:
        """Whether it was an operator's input before it was reallocated."""
        renewed_ns = min((at_ns for at_ns in self.allocated_ns.get(memory, ()) if at_ns >= since_ns), default=None)
        used_ns = [at_ns for at_ns in self.used_ns.get(memory, ()) if at_ns >= since_ns]
        return memory != 0 and any(renewed_ns is None or at_ns < renewed_ns for at_ns in used_ns)


@dataclass(slots=True)
class _Node:
    """A node that adds to a gradient: to ``target`` in place, or 0. ``memory`` is the address of what it adds, and
    ``stored`` that of the gradient afterwards, 0 if it is a copy."""

    start_ns: int
    end_ns: int
    target: int
    memory: int
    stored: int


def _follow() -> tuple[list[_Followed], bool]:
    """All living parameters, whether an optimizer holds them or not, and whether these are all that have gradients.
    Goes through the garbage collector's list once."""
    held: dict[int, Tensor] = {}
    others: dict[int, Tensor] = {}
    for thing in living(Optimizer, Parameter):
        if isinstance(thing, Optimizer):
            groups = attributes_of(thing).get("param_groups", ())  # an optimizer that is being made has none yet
            held |= {id(one): one for group in groups for one in group["params"]}
        elif type(thing) is Parameter:
            others[id(thing)] = thing
    known = {key: one for key, one in (others | held).items() if one.requires_grad}
    followed = [_begin(one, key in held) for key, one in known.items() if _is_plain(one)]
    return followed, len(followed) == len(known)


def _begin(parameter: Tensor, is_held: bool) -> _Followed:
    followed = _Followed(weakref.ref(parameter), parameter._version, is_held)
    gradient = _plain_gradient(parameter)
    followed.remember(gradient)
    followed.first_memory = followed.memory
    return followed


def _is_plain(parameter: Tensor) -> bool:
    """Whether everything that happens to its gradient is seen: hooks would receive what the backward pass adds."""
    if type(parameter) not in (Tensor, Parameter) or not parameter.requires_grad or TensorBase.is_inference(parameter):
        return False
    hooks = (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
    return parameter.is_leaf and not any(hooks)


def _plain_gradient(parameter: Tensor) -> Tensor | None:
    gradient = parameter.grad
    return gradient if type(gradient) is Tensor and gradient.layout is torch.strided else None


def _memory_of(gradient: Tensor) -> int:
    return TensorBase.untyped_storage(gradient).data_ptr()


def _tensors_in(event: Any) -> Iterator[Any]:
    for given in event.typed[1].inputs:
        for one in given if isinstance(given, list) else (given,):
            if hasattr(one, "impl_ptr"):
                yield one


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
