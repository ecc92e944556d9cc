"""Calls of the model: they end the steps of inference without a DataLoader."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.boundaries.hand_updates import HandUpdates
from profkit.collect.program.frames import walk_up
from profkit.collect.program.guard import Guard, uncompiled
from profkit.collect.program.living import living
from profkit.source.attributes import attributes_of

_OPAQUE = ("torch.ao.nn", "torch.jit")
"""Modules from these packages keep their weights packed or outside Python."""
_MOST_LOOKS = 5
"""How many times to look for modules: a program that keeps making new ones must not be slowed down."""


class ForwardCalls:
    """Calls ``on_call`` after each call of one module: the first called of the outermost modules with weights.

    Modules without weights are not models: most transforms of torchvision, losses, metrics. Calls between two updates
    by hand do not count (`HandUpdates`).

    The hook is global, because the program may copy or save a module and must not find anything added to it. It makes
    every module call a microsecond slower, and compiled code has guards on it and breaks at it. So profkit installs no
    hook if anything was or will be compiled, and removes it when the program calls ``torch.compile``.
    """

    def __init__(self, on_call: Callable[[], None], guard: Guard, updates: HandUpdates | None = None) -> None:
        self._on_call, self._guard = on_call, guard
        self._updates = HandUpdates() if updates is None else updates
        self._handle: RemovableHandle | None = None
        self._outermost: set[int] = set()
        self._known: set[int] = set()
        self._looks = 0
        self._first: int | None = None
        self._original: Any = None
        self._watching: Any = None

    def install(self) -> None:
        if self._handle is None and not is_compiler_used():
            self._handle = register_module_forward_hook(self._after_call)
            self._watch_compile()

    @property
    def has_called(self) -> bool:
        """Whether a model was called."""
        return self._first is not None

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
            if torch.compile is self._watching:  # else the program has replaced it
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
            self._guard(self._look)  # it is new
        if called not in self._outermost or self._first not in (None, called):
            return
        self._first = called
        self._guard(lambda: self._note_call(module))

    def _note_call(self, module: nn.Module) -> None:
        if not self._updates.go_on(module):
            self._on_call()

    def _look(self) -> None:
        self._looks += 1
        self._known, self._outermost = _find_modules()


def is_compiler_used() -> bool:
    """Whether ``torch.compile`` has compiled or will compile anything, whose code would notice a hook on modules."""
    return _was_compiled() or _is_importing_compiler() or any(_given_to_compiler())


def _was_compiled() -> bool:
    """Whether ``torch.compile`` has looked at any function of this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def _is_importing_compiler() -> bool:
    """Whether this thread is inside ``torch.compile``, whose first call spends seconds importing the compiler."""
    return any(frame.f_code is torch.compile.__code__ for frame in walk_up(sys._getframe()))


def _given_to_compiler() -> Iterator[bool]:
    """True for each function and module that was passed to ``torch.compile``, compiled already or not."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return
    for thing in living(FunctionType, nn.Module):
        if type(thing) is FunctionType:
            # not `attributes_of`, which would make a dictionary for each of 60,000 functions, and stay
            if hasattr(thing, "_torchdynamo_orig_callable") and not hasattr(thing, "_torchdynamo_disable"):
                yield True
        elif "_orig_mod" in _parts(thing) or attributes_of(thing).get("_compiled_call_impl") is not None:
            yield True


def _find_modules() -> tuple[set[int], set[int]]:
    """The identities of all modules, and of the outermost ones with weights; walks the garbage collector's list
    once."""
    modules = living(nn.Module)
    parts = {id(part) for module in modules for part in _parts(module).values() if part is not None}
    whole = [module for module in modules if id(module) not in parts]
    return {id(module) for module in modules}, {id(module) for module in whole if _has_weights(module, set())}


def _has_weights(module: nn.Module, seen: set[int]) -> bool:
    """Whether the module or a submodule holds a parameter or a buffer; True if Python cannot see its weights."""
    if id(module) in seen:
        return False
    seen.add(id(module))
    if type(module).__module__.startswith(_OPAQUE):
        return True
    held = (
        tensors for name in ("_parameters", "_buffers") for tensors in (attributes_of(module).get(name) or {}).values()
    )
    parts = (part for part in _parts(module).values() if part is not None)
    return any(tensor is not None for tensor in held) or any(_has_weights(part, seen) for part in parts)


def _parts(module: nn.Module) -> dict[str, nn.Module | None]:
    """Its submodules by name; none before `nn.Module.__init__` has run."""
    parts: dict[str, nn.Module | None] = attributes_of(module).get("_modules") or {}
    return parts
