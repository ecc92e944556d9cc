"""Which function a mode has to call for a function of PyTorch that asked it.

Such a function asks the modes for the public name it is known by (``handle_torch_function(Tensor.backward, …)``). If
the program has put a function of its own there, which calls PyTorch's, that one already runs: another call would run it
twice. So where the name means another function than the one that asks, the one that asks is called. A method in C asks
by a name of `torch.Tensor`; the method itself belongs to the class below.
"""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    CellType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from torch import Tensor
from torch._C import TensorBase
from torch.overrides import handle_torch_function

from profkit.collect.program.frames import forget_locals

_IN_C = (MethodDescriptorType, BuiltinFunctionType, WrapperDescriptorType, MethodWrapperType)
_ASKS = getattr(handle_torch_function, "__code__", None)


def asking(function: Any, frame: FrameType | None) -> Any:
    """What to call for ``function``, which a mode got from the code that runs in ``frame``."""
    if frame is None or frame.f_code is not _ASKS or frame.f_back is None:
        return function if type(function) in _IN_C else _method_in_place_of(function)
    if type(function) is not FunctionType:
        return function
    asker = frame.f_back
    return function if asker.f_code is function.__code__ else _function_of(asker)


def _method_in_place_of(function: Any) -> Any:
    """The method in C whose name the program has given to ``function``; ``function`` itself if it is no such name's."""
    names = (name for name, held in vars(Tensor).items() if held is function and hasattr(TensorBase, name))
    name = next(names, None)
    return function if name is None else getattr(TensorBase, name)


def _function_of(frame: FrameType) -> FunctionType:
    """A function with the code that runs in ``frame``. Arguments that a call of it leaves out are those of this run."""
    code, values = frame.f_code, dict(frame.f_locals)
    forget_locals(frame)
    closure = tuple(CellType(values.get(name)) for name in code.co_freevars)
    named, only_named = code.co_varnames[: code.co_argcount], code.co_varnames[code.co_argcount :]
    defaults = tuple(values.get(name) for name in named)
    made = FunctionType(code, frame.f_globals, code.co_name, defaults, closure)
    made.__kwdefaults__ = {name: values.get(name) for name in only_named[: code.co_kwonlyargcount]}
    return made
