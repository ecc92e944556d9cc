"""CUDA graphs that the program asked PyTorch's compiler for and that it went without: why, and at which line.

Most reasons are noted with the compilation. That a function writes into what it is given shows when it runs, as such a
tensor may belong to another graph; then the manager of the graphs knows. Both are private to PyTorch and differ between
versions, so what is not there is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from profkit.run import CallSite, SkippedGraph

IsUser = Callable[[str], bool]
_UTILS, _TREES = "torch._dynamo.utils", "torch._inductor.cudagraph_trees"
_MOST = 100
_MOST_TEXT = 2_000
_LINE = re.compile(r'File "(.+)", line (\d{1,9}), in (.+)\n    (.*)')
"""As ``traceback`` formats a stack."""
_COMPILE_ID = re.compile(r"(\d{1,9})/\d{1,9}$")


def read_skipped_graphs(is_user: IsUser) -> tuple[SkippedGraph, ...]:
    """Each reason once, in the order in which they came up. Never raises."""
    found: dict[SkippedGraph, None] = {}
    for source in (_at_compilation, _at_run_time):
        with suppress(Exception):  # private to PyTorch: nothing in there may cost the program anything
            found.update((_skipped(text, frame, is_user), None) for text, frame in source())
    return tuple(found)[:_MOST]


def _at_compilation() -> Iterator[tuple[str, int]]:
    for metrics in sys.modules[_UTILS].get_compilation_metrics():
        reason = getattr(metrics, "cudagraph_skip_reason", None)
        if reason:
            match = _COMPILE_ID.search(str(getattr(metrics, "compile_id", None)))
            yield str(reason), int(match[1]) if match else -1


def _at_run_time() -> Iterator[tuple[str, int]]:
    for container in list(sys.modules[_TREES].local.tree_manager_containers.values()):
        manager = container.tree_manager
        for number in list(getattr(manager, "warned_mutation", ())):
            yield _mutation(manager.ids_to_funcs[number]), -1


def _mutation(function: Any) -> str:
    """What the function writes into that it was given and that does not stay in one place."""
    written = [i for i in function.mutated_input_idxs if i not in set(function.static_input_idxs)]
    traces = [getattr(function.placeholders[i], "mutating_use_stack_trace", None) for i in written]
    return f"mutated inputs ({len(written)} instances)\n{next(filter(None, traces), '')}"


def _skipped(text: str, frame: int, is_user: IsUser) -> SkippedGraph:
    stack = tuple(CallSite(file, int(line), function, source.strip())
                  for file, line, function, source in _LINE.findall(text) if is_user(file))  # fmt: skip
    reason = text.partition("\n")[0].partition(". Found from")[0].partition("skipping cudagraphs due to ")
    return SkippedGraph((reason[2] or reason[0]).strip()[:_MOST_TEXT], stack, frame)
