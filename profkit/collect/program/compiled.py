"""What PyTorch's compiler did in this process so far: what it compiled, why again, and where it had to stop.

The compiler keeps these records itself, for its own reports (``torch._dynamo.utils``). The modules are private and
differ between versions, so what is missing is left out. They are never imported: a program that compiles nothing pays
nothing.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.program.skipped_graphs import IsUser, read_skipped_graphs
from profkit.run import CallSite, Compilation, Compiled, GraphBreak
from profkit.source.code import PROFKIT, source_line

_UTILS = "torch._dynamo.utils"
_MOST = 500
"""Records of each kind. The compiler keeps the last 64 to 5000 compilations, by version, and all graph breaks."""
_MOST_TEXT = 2_000
_COMPILE_ID = re.compile(r"(\d{1,9})/\d{1,9}$")


def read_compiled(is_user: IsUser) -> Compiled | None:
    """The compiler's records of the user's functions; None if there are none. Never raises."""
    with suppress(Exception):  # private to PyTorch: nothing in there may cost the program anything
        utils = sys.modules.get(_UTILS)
        if utils is not None:
            compilations = _compilations(utils, is_user)
            breaks = _graph_breaks(utils, is_user)
            if compilations or breaks:
                return Compiled(breaks, compilations, _elapsed_ns(), read_skipped_graphs(is_user))
    return None


def _elapsed_ns() -> int:
    """How long this process has lived."""
    return int((time.time() - psutil.Process().create_time()) * 1e9)


def _graph_breaks(utils: Any, is_user: IsUser) -> tuple[GraphBreak, ...]:
    """Each reason once per stack, without breaks in profkit's own code and those in no function of the user's."""
    counted: dict[tuple[str, tuple[CallSite, ...]], int] = {}
    for record in list(getattr(utils, "graph_break_reasons", ()))[-_MOST:]:
        frames = list(getattr(record, "user_stack", None) or ())
        if not any(is_user(frame.filename) for frame in frames) or _is_own(frames[-1].filename):
            continue
        stack = tuple(_call_site(frame.filename, frame.lineno or 0, frame.name) for frame in frames)
        key = str(record.reason)[:_MOST_TEXT], stack
        counted[key] = counted.get(key, 0) + 1
    return tuple(GraphBreak(reason, stack, len(stack) - 1 - _innermost(stack, is_user), count)
                 for (reason, stack), count in counted.items())  # fmt: skip


def _innermost(stack: tuple[CallSite, ...], is_user: IsUser) -> int:
    return max(i for i, site in enumerate(stack) if is_user(site.file))


def _is_own(file: str) -> bool:
    return os.path.abspath(file).startswith(PROFKIT) and f"{os.sep}_scenarios{os.sep}" not in file


def _compilations(utils: Any, is_user: IsUser) -> tuple[Compilation, ...]:
    """In order of time. Failed compilations and those of a backward pass carry their function's number alone."""
    read = getattr(utils, "get_compilation_metrics", None)
    found: list[Compilation] = []
    users: set[int] = set()
    for metrics in _last(read() if read is not None else ()):
        frame = _frame_of(getattr(metrics, "compile_id", None))
        file = getattr(metrics, "co_filename", None) or ""
        if is_user(file) if file else frame in users:
            users.add(frame)
            found.append(_compilation(metrics, frame, file, is_user))
    return tuple(found)


def _last(records: Iterable[Any]) -> list[Any]:
    return list(records)[-_MOST:]


def _compilation(metrics: Any, frame: int, file: str, is_user: IsUser) -> Compilation:
    def text(name: str) -> str:
        return str(getattr(metrics, name, None) or "")[:_MOST_TEXT]

    line = int(getattr(metrics, "co_firstlineno", None) or 0)
    failed, failed_line = text("fail_user_frame_filename"), getattr(metrics, "fail_user_frame_lineno", None) or 0
    seconds = getattr(metrics, "entire_frame_compile_time_s", None) or 0.0
    return Compilation(
        frame=frame,
        site=_call_site(file, line, text("co_name")) if file else None,
        duration_ns=int(float(seconds) * 1e9),
        reason=text("recompile_reason"),
        failure=text("fail_reason"),
        failed_at=_call_site(failed, int(failed_line), text("co_name")) if is_user(failed) and failed_line else None,
    )


def _frame_of(compile_id: object) -> int:
    """The compiler's number of the function, -1 if unknown: ``3/1`` is the second of the fourth function."""
    match = _COMPILE_ID.search(str(compile_id))
    return int(match[1]) if match else -1


def _call_site(file: str, line: int, function: str) -> CallSite:
    return CallSite(file, line, function, source_line(file, line))
