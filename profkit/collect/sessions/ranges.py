"""A range that is open when a recording stops must not end in a later one.

PyTorch knows an open event by its address in the recording's memory, which the stop frees. If a profiler is on when the
event ends, its end is written to that address (``onFunctionExit`` in ``profiler_kineto.cpp``). During a later
recording, profkit's or the program's, that writes into freed memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.autograd.profiler import record_function

from profkit.collect.program.guard import uncompiled

_cut_off: list[object] = []
"""Handles of ranges that outlived their recording. They are kept, because freeing a handle ends its event."""


class OpenRanges:
    """Follows the open ``record_function`` ranges of the program; `close_off` keeps them from ending.

    Operators that are open at a stop have no handle in Python: see ``cut_operators_off`` of `Recordings`.
    """

    def __init__(self) -> None:
        self._open: dict[int, Any] = {}
        self._originals: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def install(self) -> None:
        """Follow the ranges that begin from here on."""
        enter, leave = self._originals = record_function.__enter__, record_function.__exit__

        @uncompiled
        def follow(entered: record_function) -> Any:
            self._open[id(entered)] = entered
            return enter(entered)  # type: ignore[no-untyped-call]  # torch gives no types here

        @uncompiled
        def forget(left: record_function, *error: Any) -> None:
            self._open.pop(id(left), None)
            leave(left, *error)

        _replace(follow, forget)

    def close_off(self) -> None:
        """Stop following. Ranges that are open now will never report their end to the profiler."""
        if self._originals is not None:
            _replace(*self._originals)
            self._originals = None
        for entered in self._open.values():
            entered.run_callbacks_on_exit = False
            _cut_off.append(entered.record)
        self._open.clear()


def _replace(enter: Callable[..., Any], leave: Callable[..., Any]) -> None:
    setattr(record_function, "__enter__", enter)  # noqa: B010  # mypy refuses to assign to a method
    setattr(record_function, "__exit__", leave)  # noqa: B010  # as above
