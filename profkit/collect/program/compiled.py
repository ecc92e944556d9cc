"""What PyTorch's compiler has done in this process: what it compiled, what it compiled again and why, where it had to
stop, and which CUDA graphs it skipped.

The compiler keeps these records for its own reports (``torch._dynamo.utils``). The modules are private and differ
between versions, so missing parts are left out. profkit never imports them: a program that compiles nothing pays
nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.program.clocks import time
from profkit.run.directory import CallSite, Compilation, Compiled, GeneratedCode, GraphBreak, SkippedGraph
from profkit.source.code import PROFKIT, source_line

_IsUser = Callable[[str], bool]
_UTILS, _TREES = "torch._dynamo.utils", "torch._inductor.cudagraph_trees"
_MOST = 500
"""Records of each kind. The compiler keeps the last 64 to 5000 compilations, by version, and all graph breaks."""
_MOST_SKIPPED = 100
_MOST_TEXT = 2_000
_LINE = re.compile(r'File "(.+)", line (\d{1,9}), in (.+)\n    (.*)')
"""As ``traceback`` formats a stack."""
_HITS = ("inductor_fx_local_cache_hit_count", "inductor_fx_remote_cache_hit_count")
_MISSES = ("inductor_fx_local_cache_miss_count",)
"""By PyTorch 2.13. What a hit spared is called ``remote_cache_time_saved_s`` for a cache on the disk, too. A graph that
is in none counts as missed in the local one; it may then be found in a remote one."""
_COMPILE_ID = re.compile(r"(\d{1,9})/\d{1,9}$")


def read_compiled(is_user: _IsUser) -> Compiled | None:
    """The compiler's records of the user's functions; None if there are none. Never raises."""
    with suppress(Exception):  # the records are private to PyTorch, and no error in them may reach the program
        utils = sys.modules.get(_UTILS)
        if utils is not None:
            compilations = _compilations(utils, is_user)
            breaks = _graph_breaks(utils, is_user)
            if compilations or breaks:
                lived_ns = int((time.time() - psutil.Process().create_time()) * 1e9)
                return Compiled(breaks, compilations, lived_ns, read_skipped_graphs(is_user))
    return None


def compiler_is_used() -> bool:
    """Whether anything was compiled or given to the compiler, which counts only from its first call on. Code that the
    compiler shall leave alone has no backend."""
    contexts, utils = (sys.modules.get(f"torch._dynamo.{name}") for name in ("eval_frame", "utils"))
    backends = getattr(contexts, "cached_backends", {}).values()
    return any(backend is not None for backend in backends) or any(getattr(utils, "counters", {}).values())


def _graph_breaks(utils: Any, is_user: _IsUser) -> tuple[GraphBreak, ...]:
    """Each reason once per stack, except breaks in profkit's own code and breaks outside the user's functions."""
    counted: dict[tuple[str, tuple[CallSite, ...]], int] = {}
    for record in list(getattr(utils, "graph_break_reasons", ()))[-_MOST:]:
        frames = list(getattr(record, "user_stack", None) or ())
        if not any(is_user(frame.filename) for frame in frames) or _is_own(frames[-1].filename):
            continue
        stack = tuple(_call_site(frame.filename, frame.lineno or 0, frame.name) for frame in frames)
        key = str(record.reason)[:_MOST_TEXT], stack
        counted[key] = counted.get(key, 0) + 1
    breaks = []
    for (reason, stack), count in counted.items():
        depth = next(depth for depth, site in enumerate(reversed(stack)) if is_user(site.file))
        breaks.append(GraphBreak(reason, stack, depth, count))
    return tuple(breaks)


def _is_own(file: str) -> bool:
    return os.path.abspath(file).startswith(PROFKIT) and f"{os.sep}_scenarios{os.sep}" not in file


def _compilations(utils: Any, is_user: _IsUser) -> tuple[Compilation, ...]:
    """In order of time. Failed compilations and those of a backward pass only carry their function's number."""
    read = getattr(utils, "get_compilation_metrics", None)
    found: list[Compilation] = []
    users: set[int] = set()
    for metrics in list(read() if read is not None else ())[-_MOST:]:
        frame = _frame_of(metrics)
        file = getattr(metrics, "co_filename", None) or ""
        if is_user(file) if file else frame in users:
            users.add(frame)
            found.append(_compilation(metrics, frame, file, is_user))
    return tuple(found)


def _compilation(metrics: Any, frame: int, file: str, is_user: _IsUser) -> Compilation:
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


def read_generated_code() -> GeneratedCode | None:
    """What the caches of generated code had to do with all compilations; None if no graph was looked up in one. A
    backward pass that is compiled with its forward pass counts as a graph of its own. Never raises."""
    hits = misses = 0
    generating_s = spared_s = 0.0
    with suppress(Exception):  # private to PyTorch, as above
        for metrics in list(sys.modules[_UTILS].get_compilation_metrics())[-_MOST:]:
            found, missed = (sum(_number(metrics, name) for name in names) for names in (_HITS, _MISSES))
            hits, misses = hits + int(found), misses + int(missed)
            generating_s += _number(metrics, "inductor_compile_time_s") if missed else 0.0
            spared_s += _number(metrics, "remote_cache_time_saved_s") if found else 0.0
    return GeneratedCode(hits, misses, int(generating_s * 1e9), int(spared_s * 1e9)) if hits or misses else None


def _number(metrics: Any, name: str) -> float:
    found = getattr(metrics, name, None)
    return max(0.0, float(found)) if isinstance(found, int | float) else 0.0


def _frame_of(metrics: Any) -> int:
    """The compiler's number of the function, -1 if unknown: ``3/1`` is the fourth function's second compilation."""
    match = _COMPILE_ID.search(str(getattr(metrics, "compile_id", None)))
    return int(match[1]) if match else -1


def _call_site(file: str, line: int, function: str) -> CallSite:
    return CallSite(file, line, function, source_line(file, line))


def read_skipped_graphs(is_user: _IsUser) -> tuple[SkippedGraph, ...]:
    """CUDA graphs that the program asked for and the compiler skipped: each reason once, in order. Never raises.

    Most reasons are recorded with the compilation. That a function writes into one of its inputs only shows when it
    runs, since the tensor may belong to another CUDA graph; those reasons come from the manager of the graphs.
    """
    found: dict[SkippedGraph, None] = {}
    for source in (_at_compilation, _at_run_time):
        with suppress(Exception):  # private to PyTorch, as above
            found.update((_skipped(text, frame, is_user), None) for text, frame in source())
    return tuple(found)[:_MOST_SKIPPED]


def _at_compilation() -> Iterator[tuple[str, int]]:
    for metrics in sys.modules[_UTILS].get_compilation_metrics():
        reason = getattr(metrics, "cudagraph_skip_reason", None)
        if reason:
            yield str(reason), _frame_of(metrics)


def _at_run_time() -> Iterator[tuple[str, int]]:
    for container in list(sys.modules[_TREES].local.tree_manager_containers.values()):
        manager = container.tree_manager
        for number in list(getattr(manager, "warned_mutation", ())):
            yield _mutation(manager.ids_to_funcs[number]), -1


def _mutation(function: Any) -> str:
    """The inputs that the function writes into and whose address is not static."""
    written = [i for i in function.mutated_input_idxs if i not in set(function.static_input_idxs)]
    traces = [getattr(function.placeholders[i], "mutating_use_stack_trace", None) for i in written]
    return f"mutated inputs ({len(written)} instances)\n{next(filter(None, traces), '')}"


def _skipped(text: str, frame: int, is_user: _IsUser) -> SkippedGraph:
    stack = tuple(
        CallSite(file, int(line), function, source.strip())
        for file, line, function, source in _LINE.findall(text)
        if is_user(file)
    )
    reason = text.partition("\n")[0].partition(". Found from")[0].partition("skipping cudagraphs due to ")
    return SkippedGraph((reason[2] or reason[0]).strip()[:_MOST_TEXT], stack, frame)
