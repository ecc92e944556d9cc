"""Calls of the model: they end the steps of an inference that does not use a DataLoader."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.program.guard import Guard, uncompiled
from profkit.collect.program.living import living

_OPAQUE = ("torch.ao.nn", "torch.jit")
"""Modules from here hold their weights packed, or outside of Python."""
_MOST_LOOKS = 5
"""How often to look for modules: a program that keeps making new ones must not pay for it."""


class ForwardCalls:
    """Calls ``on_call`` after each call of one module: of the outermost with weights, the one that is called first.

    Modules without weights are no models: most transforms of torchvision, losses, metrics.

    The hook is global, so that nothing is added to a module that the program may copy or save. It makes every call of a
    module a microsecond slower, and compiled code is guarded against it and breaks at it. So there is none where
    something was or will be compiled, and it goes when the program calls ``torch.compile``.
    """

    def __init__(self, on_call: Callable[[], None], guard: Guard) -> None:
        self._on_call, self._guard = on_call, guard
        self._handle: RemovableHandle | None = None
        self._outermost: set[int] = set()
        self._known: set[int] = set()
        self._looks = 0
        self._first: int | None = None
        self._original: Any = None
        self._watching: Any = None

    def install(self) -> None:
        if self._handle is None and not (_was_compiled() or _is_asked_for_compiler() or any(_given_to_compiler())):
            self._look()
            self._handle = register_module_forward_hook(self._after_call)
            self._watch_compile()

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
            if torch.compile is self._watching:  # else the program has put something of its own there
                torch.compile = self._original

    def _watch_compile(self) -> None:
        self._original = original = torch.compile

        @functools.wraps(original)
        def compile(*arguments: Any, **options: Any) -> Any:  # noqa: A001  # its name in a traceback
            self._guard(self.remove)
            return original(*arguments, **options)

        torch.compile = self._watching = compile

    @uncompiled
    def _after_call(self, module: nn.Module, arguments: Any, output: Any) -> None:  # noqa: ARG002  # torch's signature
        called = id(module)
        if self._first is None and called not in self._known and self._looks < _MOST_LOOKS:
            self._guard(self._look)  # it was made since
        if called not in self._outermost or self._first not in (None, called):
            return
        self._first = called
        self._guard(self._on_call)

    def _look(self) -> None:
        self._looks += 1
        self._known, self._outermost = _find_modules()


def _was_compiled() -> bool:
    """Whether ``torch.compile`` has looked at any function of this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def _is_asked_for_compiler() -> bool:
    """Whether this thread is inside ``torch.compile``, whose first call spends seconds importing the compiler."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not torch.compile.__code__:
        frame = frame.f_back
    return frame is not None


def _given_to_compiler() -> Iterator[bool]:
    """True for each function and module given to ``torch.compile``, compiled or not yet."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return
    for thing in living(FunctionType, nn.Module):
        if type(thing) is FunctionType:
            attributes = thing.__dict__
            if "_torchdynamo_orig_callable" in attributes and "_torchdynamo_disable" not in attributes:
                yield True
        elif "_orig_mod" in _parts(thing) or thing.__dict__.get("_compiled_call_impl") is not None:
            yield True


def _find_modules() -> tuple[set[int], set[int]]:
    """The identities of all modules, and of those with weights that are part of no other; goes through the collector's
    list once."""
    modules = living(nn.Module)
    parts = {id(part) for module in modules for part in _parts(module).values() if part is not None}
    whole = [module for module in modules if id(module) not in parts]
    return {id(module) for module in modules}, {id(module) for module in whole if _has_weights(module, set())}


def _has_weights(module: nn.Module, seen: set[int]) -> bool:
    """Whether it or a part of it holds a parameter or a buffer; assumed if Python cannot see that."""
    if id(module) in seen:
        return False
    seen.add(id(module))
    if type(module).__module__.startswith(_OPAQUE):
        return True
    held = (tensors for name in ("_parameters", "_buffers") for tensors in (vars(module).get(name) or {}).values())
    parts = (part for part in _parts(module).values() if part is not None)
    return any(tensor is not None for tensor in held) or any(_has_weights(part, seen) for part in parts)


def _parts(module: nn.Module) -> dict[str, nn.Module | None]:
    """Its submodules by name; none before `nn.Module.__init__` has run."""
    parts: dict[str, nn.Module | None] = vars(module).get("_modules") or {}
    return parts
