"""Calls of the model: where the steps of an inference end that asks no DataLoader for its batches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.guard import Guard, uncompiled


class ForwardCalls:
    """Calls ``on_call`` after each call of the outermost module that is called first.

    The hook is a global one, so that nothing is added to a module that the program may copy or save. It makes every
    call of a module a microsecond slower, and compiled code is guarded against it: where something was compiled,
    nothing is listened to.
    """

    def __init__(self, on_call: Callable[[], None], guard: Guard) -> None:
        self._on_call, self._guard = on_call, guard
        self._handle: RemovableHandle | None = None
        self._outermost: set[int] = set()
        self._first: int | None = None

    def install(self) -> None:
        if self._handle is None and not _was_compiled():
            self._outermost = _outermost_modules()
            self._handle = register_module_forward_hook(self._after_call)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    @uncompiled
    def _after_call(self, module: nn.Module, arguments: Any, output: Any) -> None:  # noqa: ARG002  # torch's signature
        called = id(module)
        if called not in self._outermost or self._first not in (None, called):
            return
        self._first = called
        self._guard(self._on_call)


def _was_compiled() -> bool:
    """Whether ``torch.compile`` has looked at any function of this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def _outermost_modules() -> set[int]:
    """The modules that are part of no other, by identity; looks through the garbage collector's list once."""
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    parts = {id(part) for module in modules for part in module._modules.values() if part is not None}
    return {id(module) for module in modules} - parts
