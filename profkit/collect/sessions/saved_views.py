"""How much of the storages that `torch.save` is about to write its tensors show.

A tensor is saved with its whole storage, so that views of one still share it when they are loaded. A slice of a batch
or of a table brings all of that along (https://docs.pytorch.org/docs/stable/notes/serialization.html).
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch._C import TensorBase
from torch.nn import Parameter

from profkit.collect.program.frames import forget_locals, walk_up

_FILE, _FUNCTION, _GIVEN = torch.serialization.__file__, "save", "obj"
_MOST_FRAMES = 12
"""Between a writer's first attribute and the function that was asked to save; there are four in PyTorch 2.13."""
_MOST_VALUES = 20_000
"""A state of more parts is a model's and its optimizer's, whose tensors hold their storages alone."""
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""What holds no tensor. Other objects may hold one that shows the rest of a storage, and looking into them may run code
of theirs."""


def sizes_being_saved() -> tuple[int, int]:
    """The bytes of the tensors that the innermost `torch.save` on this thread is to write, and of their storages; zeros
    if there is none, or if what it is to write holds more than was looked at."""
    for _, frame in zip(range(_MOST_FRAMES), walk_up(sys._getframe()), strict=False):
        if frame.f_code.co_name == _FUNCTION and frame.f_code.co_filename == _FILE:
            given = frame.f_locals.get(_GIVEN)
            forget_locals(frame)
            return _sizes_of(given)
    return 0, 0


def _sizes_of(given: object) -> tuple[int, int]:
    tensors = _tensors_in(given)
    if tensors is None:
        return 0, 0
    shown, whole = Counter[int](), dict[int, int]()
    for tensor in tensors:
        storage = TensorBase.untyped_storage(tensor)
        shown[storage._cdata] += TensorBase.numel(tensor) * TensorBase.element_size(tensor)
        whole[storage._cdata] = storage.nbytes()
    return sum(min(shown[one], size) for one, size in whole.items()), sum(whole.values())


def _tensors_in(given: object) -> list[Tensor] | None:
    """All of them, in dicts, lists and tuples; None if there may be others."""
    waiting: list[Any] = [given]
    found: list[Tensor] = []
    for _ in range(_MOST_VALUES):
        if not waiting:
            return found
        value = waiting.pop()
        if type(value) in (Tensor, Parameter) and value.layout is torch.strided and value.device.type != "meta":
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(dict.values(value))
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif not isinstance(value, _PLAIN):
            return None
    return None
