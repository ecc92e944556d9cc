"""Which function a mode has to call for a Python function of PyTorch that asked it.

Such a function asks the modes for the public name it is known by (``handle_torch_function(Tensor.backward, …)``). If
the program has put a function of its own there, which calls PyTorch's, that one already runs: another call would run it
twice. So where the name means another function than the one that asks, the one that asks is called.
"""

from __future__ import annotations

from types import CellType, FrameType, FunctionType
from typing import Any

from torch.overrides import handle_torch_function

from profkit.collect.program.frames import forget_locals

_ASKS = getattr(handle_torch_function, "__code__", None)


def asking(function: Any, frame: FrameType | None) -> Any:
    """What to call for ``function``, which a mode got from the code that runs in ``frame``."""
    if frame is None or frame.f_code is not _ASKS or frame.f_back is None or type(function) is not FunctionType:
        return function  # asked by C
    asker = frame.f_back
    return function if asker.f_code is function.__code__ else _function_of(asker)


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
