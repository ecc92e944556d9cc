"""Programs that differentiate by `torch.autograd.grad` and update their weights by hand: calls of the model between two
updates are parts of one step. A loop over the examples of a batch, one gradient for each, makes sixty-four of them.

Nothing tells of such an update. But the model's weights are other tensors afterwards, or have another version.
"""

from __future__ import annotations

import sys
import weakref
from types import ModuleType

import torch
from torch import Tensor, nn

from profkit.collect.machine.patience import Patience
from profkit.collect.program.guard import noticed

_PATIENCE_S = 1.0
"""How long the weights may stay as they are. An attack on a model differentiates and never updates: there each call
stays a step, and a short program must not be over before the first one."""


class HandUpdates:
    """From `install` to `remove`, knows whether the program differentiates by hand. Python looks `grad` up in its
    module just before it calls it, so a property of the module's class notices that without being on the stack."""

    def __init__(self) -> None:
        self._differentiates = self._gave_up = False
        self._weights: weakref.ref[Tensor] | None = None
        self._version = 0
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

    def _note_lookup(self) -> None:
        self._differentiates = True

    def remove(self) -> None:
        module, installed, self._installed = torch.autograd, self._installed, None
        if installed is not None and type(module) is installed and self._original is not None:
            module.__class__ = self._original  # else something else has replaced it

    def go_on(self, module: nn.Module) -> bool:
        """The model was called: whether its weights are those of the call before, so that the step is not over."""
        if self._gave_up or not self._differentiates:
            return False
        weights = next(module.parameters(), None)
        if weights is None or weights.is_inference():
            return False
        known, version = self._weights() if self._weights else None, self._version
        self._weights, self._version = weakref.ref(weights), weights._version
        if known is not weights or version != weights._version or self._patience is None:
            self._patience = Patience(_PATIENCE_S)
            return False
        self._gave_up = self._patience.is_over()
        return not self._gave_up
