"""Which variables of a function hold the same whenever it returns, though it makes them anew each time.

Only lists, tables, sets and arrays with several different values count: a few flags or zeros may be alike by chance.
Of tensors the watch of PyTorch's calls knows more.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import numpy as np

from profkit.collect.functions.describing import Describer
from profkit.collect.program.frames import SUSPENDS
from profkit.run.directory import CallSite, RepeatedCall
from profkit.source.code import function_name, source_file, source_line
from profkit.source.made_again import lines_making

_LOOKS, _EVERY = 32, 16
"""Returns of a function in a step that are looked at before it is one in so many."""
_LEAST_CALLS = 20
"""As of calls that repeat others (`profkit.patterns.repeated_calls`): fewer may be alike by chance."""
_LEAST_DIFFERENT, _LOOKED_THROUGH = 8, 256
"""Values in a container, and how many of its first ones are looked at for that."""
_CONTAINERS = (list, tuple, dict, set, np.ndarray)


@dataclass(slots=True, eq=False)
class _Function:
    code: CodeType
    calls: int = 0
    looked_at: int = 0
    held: dict[str, Hashable] | None = None


class Variables:
    """`note_return` when a function of the program returns; ``found`` for one step."""

    def __init__(self, describer: Describer) -> None:
        self._describer = describer
        self._functions: dict[int, _Function] = {}

    def is_due(self, code: CodeType) -> bool:
        """Count a return of this function: whether its variables are worth a look."""
        one = self._functions.get(id(code))
        if one is None:
            one = self._functions[id(code)] = _Function(code, held=None if _has_variables(code) else {})
        one.calls += 1
        is_empty = one.held is not None and not one.held
        return not is_empty and (one.looked_at < _LOOKS or not one.calls % _EVERY)

    def note_return(self, frame: FrameType) -> None:
        """Compare what the function's variables hold with what they held when it returned before."""
        one = self._functions[id(frame.f_code)]
        values = frame.f_locals
        names = _own_variables(frame.f_code) if one.held is None else tuple(one.held)
        now = {name: self._content(values[name]) for name in names if name in values}
        before = now if one.held is None else one.held
        one.held = {
            name: content for name, content in before.items() if content is not None and now.get(name) == content
        }
        one.looked_at += 1

    def _content(self, value: Any) -> Hashable:
        if type(value) not in _CONTAINERS or not _varies(value):
            return None
        try:
            return self._describer.result(value)
        except Exception:  # as for arguments
            return None

    def found(self, *, is_whole: bool) -> Iterator[RepeatedCall]:
        """A call for each line that makes such a variable."""
        for one in self._functions.values():
            if one.looked_at < _LEAST_CALLS:
                continue
            file, name = source_file(one.code), function_name(one.code)
            defined = CallSite(file, one.code.co_firstlineno, name, "")
            for variable in one.held or ():
                for line in lines_making(file, one.code.co_firstlineno, variable):
                    yield RepeatedCall(
                        site=CallSite(file, line, name, source_line(file, line)),
                        callee=variable,
                        defined=defined,
                        calls=one.calls,
                        of_line=one.calls,
                        looked_at=one.looked_at,
                        again=one.looked_at - 1,
                        is_whole=is_whole,
                        is_variable=True,
                    )


def _has_variables(code: CodeType) -> bool:
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_flags & SUSPENDS
    return bool(is_function and not code.co_name.startswith("<") and _own_variables(code))


def _own_variables(code: CodeType) -> tuple[str, ...]:
    """Without the arguments."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[count:]


def _varies(value: Any) -> bool:
    """Whether a container holds several different plain values."""
    if type(value) is np.ndarray:
        if value.dtype.hasobject or not value.size:
            return False
        return len(np.unique(value.reshape(-1)[:_LOOKED_THROUGH])) >= _LEAST_DIFFERENT
    items = list(islice(value.values() if type(value) is dict else value, _LOOKED_THROUGH))
    plain = {item for item in items if type(item) in (int, float, str, bytes)}
    return len(plain) >= _LEAST_DIFFERENT
