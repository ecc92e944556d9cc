"""Programs that update their weights by hand: calls of the model between two updates are parts of one step. A loop over
the examples of a batch, one `torch.autograd.grad` for each, makes sixty-four of them. An evolution without gradients
plays a game of hundreds with each set of weights.

Nothing tells of such an update. But the model's weights are other tensors afterwards, or have another version. One that
goes through ``.data`` leaves both as they are, so a few numbers of the first and the last weights are compared, too,
where they lie in the host's memory. With those on a device it takes `_PATIENCE_S` until calls are steps.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections import deque
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn
from torch._C import TensorBase

from profkit.collect.boundaries.accumulation import has_living_optimizer
from profkit.collect.machine.patience import Patience
from profkit.collect.program.guard import noticed

_PATIENCE_S = 1.0
"""How long the weights may stay as they are. An attack on a model differentiates and never updates: there each call
stays a step, and a short program must not be over before the first one."""
_READ_BYTES = 64
"""Of the beginning of the first and of the last weights: 16 numbers of each. The last are mostly those of an output,
which every example moves."""


_UNKNOWN_S = 0.2
"""The same if nothing is differentiated and no update was seen yet, for models in training mode without an optimizer.
A program that only infers and does not say so has its first step so much later. The opening that was recorded before
took about as long."""


class HandUpdates:
    """From `install` to `remove`, knows whether the program differentiates by hand. Python looks `grad` up in its
    module just before it calls it, so a property of the module's class notices that without being on the stack. From
    `tell` on, each such look-up calls ``on_gradient``, which may not raise. Where the user ``chose`` calls of the model
    as steps, only a program that differentiates is taken to update."""

    def __init__(self, on_gradient: Callable[[], None] = lambda: None, chose: bool = False) -> None:
        self._on_gradient, self._tells, self._chose = on_gradient, False, chose
        self._differentiates = self._gave_up = self._has_changed = False
        self._has_optimizer: bool | None = None
        self._weights: weakref.ref[Tensor] | None = None
        self._last: weakref.ref[Tensor] | None = None
        self._version, self._numbers = 0, b""
        self._patience: Patience | None = None
        self._original: type[ModuleType] | None = None
        self._installed: type[ModuleType] | None = None

    def install(self) -> None:
        module = sys.modules["torch.autograd"]
        if self._installed is not None or "grad" not in vars(module):
            return
        noticing = {"__slots__": (), "grad": noticed("grad", lambda _: self._note_lookup())}
        Noticed = type("module", (type(module),), noticing)  # noqa: N806  # a class
        self._original, self._installed = type(module), Noticed
        module.__class__ = Noticed

    def tell(self) -> None:
        self._tells = True

    def _note_lookup(self) -> None:
        if not self._differentiates:
            self._differentiates, self._gave_up, self._patience = True, False, None
        if self._tells:
            self._on_gradient()

    def remove(self) -> None:
        self._tells = False
        module, installed, self._installed = torch.autograd, self._installed, None
        if installed is not None and type(module) is installed and self._original is not None:
            module.__class__ = self._original  # else something else has replaced it

    def go_on(self, module: nn.Module) -> bool:
        """The model was called: whether its weights are those of the call before, so that the step is not over."""
        if self._gave_up or not (self._differentiates or self._may_update(module)):
            return False
        weights = next(module.parameters(), None)
        if weights is None or weights.is_inference():
            return False
        known, before = self._weights() if self._weights else None, (self._version, self._numbers)
        if known is not weights:
            self._last = weakref.ref(deque(module.parameters(), maxlen=1)[0])
        self._weights, self._version = weakref.ref(weights), weights._version
        self._numbers = _numbers_of(weights) + _numbers_of(self._last() if self._last else None)
        is_changed = known is not weights or before != (self._version, self._numbers)
        if is_changed or self._patience is None:
            self._has_changed |= known is not None and is_changed
            self._patience = Patience(_PATIENCE_S if self._differentiates or self._has_changed else _UNKNOWN_S)
            return False
        self._gave_up = self._patience.is_over()
        return not self._gave_up

    def _may_update(self, module: nn.Module) -> bool:
        """Whether the program may update the model's weights without a gradient: it does not only infer, and has no
        optimizer, whose steps would tell."""
        if self._has_optimizer is None:
            self._has_optimizer = has_living_optimizer()
        return module.training and not (self._chose or self._has_optimizer)


def _numbers_of(weights: Tensor | None) -> bytes:
    """The first numbers as they lie in the host's memory, read without an operator; empty if they lie elsewhere."""
    if weights is None or not TensorBase.is_contiguous(weights) or weights.device.type != "cpu":
        return b""
    try:
        start, size = TensorBase.data_ptr(weights), TensorBase.numel(weights) * TensorBase.element_size(weights)
    except RuntimeError:  # a wrapper, as of `torch.func`
        return b""
    return ctypes.string_at(start, min(size, _READ_BYTES)) if start else b""
