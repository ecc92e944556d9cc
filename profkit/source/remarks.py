"""What the program's source says and a recording of a few steps cannot show, by its syntax tree.

Settings that are changed, DataLoaders that are made, objects that come to refer to each other, data that may become
float64, hooks, evaluations that run with autograd on or whose results are rarely used, calls that only log, and calls
that take long for what they do. Much happens once an epoch, long after the recorded steps. Nothing is said unless the
text proves it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from profkit.run.directory import CallSite, Remark
from profkit.source import remark_kinds as kinds
from profkit.source.code import module_names, source_line
from profkit.source.costly_lines import costly_lines
from profkit.source.doubles import double_makers
from profkit.source.evaluations.logged import logged
from profkit.source.evaluations.rarely_read import rarely_read
from profkit.source.evaluations.rarely_used import RareUse, rarely_used
from profkit.source.evaluations.with_grad import evaluations_with_grad
from profkit.source.index import SourceFile, parsed_file
from profkit.source.models.layers import biased_layers
from profkit.source.randomness.seeds import drawn, seeded
from profkit.source.reference_cycles import cycle_closers
from profkit.source.settings import anomaly_mode_setters
from profkit.source.syntax import FUNCTIONS, calls_named, last_name, name_called

_MADE_ONCE = ("__init__", "<module>")
"""What is registered in a constructor comes once for each object."""
_MOST_FILES = 100
_MOST_REMARKS = 100
"""Per kind."""
_MOST_DRAWN = 8
"""Of each file and kind of random numbers: the first few show that they are drawn."""


def user_sources(is_user: Callable[[str], bool]) -> list[str]:
    """The files of the user's modules that are loaded now."""
    files = (module_names(name).get("__file__") for name in list(sys.modules))
    return [file for file in dict.fromkeys(files) if isinstance(file, str) and is_user(file)][:_MOST_FILES]


def review_sources(paths: Iterable[str]) -> tuple[Remark, ...]:
    """Remarks on the given files. A file that cannot be read or is not Python is skipped."""
    files = [file for path in paths if (file := parsed_file(path)) is not None]
    with_grad = [Remark(kinds.EVALUATION_WITH_GRAD, _site(file, line)) for file, line in evaluations_with_grad(files)]
    rare = [
        Remark(kind, _site(file, use.line), use.until, use.used_at, use.every)
        for kind, find in _RARE.items()
        for file in files
        for use in find(file.tree)
    ]
    to_a_log = [Remark(kinds.LOGGED, _site(file, line), until) for file in files for line, until in logged(file.tree)]
    closing = [Remark(kinds.CYCLE_CLOSED, _site(file, line)) for file, line in cycle_closers(files)]
    layers = [
        Remark(kinds.BIASED_LAYER_MADE, _site(file, layer.made), used_at=layer.called)
        for file in files
        for layer in biased_layers(file)
    ]
    hooks = [
        Remark(kinds.HOOK_REGISTERED, _site(file, line), until, first)
        for file in files
        for line, first, until in _hook_registrations(file)
    ]
    random = [
        Remark(kind_of[whose], _site(file, line))
        for find, kind_of in ((seeded, kinds.SEEDS), (drawn, kinds.DRAWS))
        for file in files
        for whose, lines in find(file).items()
        for line in sorted(set(lines))[:_MOST_DRAWN]
    ]
    costly = [
        Remark(one.kind, _site(file, one.line), one.until)
        for file in files
        for one in costly_lines(file)[:_MOST_REMARKS]
    ]
    others = (
        [Remark(kind, _site(file, line)) for file in files for line in find(file)] for kind, find in _FINDERS.items()
    )
    found = (with_grad, closing, *others, rare, to_a_log, layers, hooks, random, costly)
    return tuple(remark for remarks in found for remark in remarks[:_MOST_REMARKS])


def _calls_of(name: str) -> Callable[[SourceFile], list[int]]:
    """Finds the lines that call ``name(...)`` or ``module.name(...)``."""
    return lambda file: sorted(call.lineno for call in calls_named(file.tree, name))


_RARE: Mapping[str, Callable[[ast.Module], Iterable[RareUse]]] = {
    kinds.RARELY_USED: rarely_used,
    kinds.RARELY_READ: rarely_read,
}
_FINDERS: Mapping[str, Callable[[SourceFile], Iterable[int]]] = {
    kinds.THREADS_SET: _calls_of("set_num_threads"),
    kinds.LOADER_MADE: _calls_of("DataLoader"),
    kinds.DETERMINISM_SET: _calls_of("use_deterministic_algorithms"),
    kinds.ANOMALY_MODE_SET: lambda file: anomaly_mode_setters(file.tree),
    kinds.DOUBLES_BY_DEFAULT: lambda file: double_makers(file.tree).by_default,
    kinds.DOUBLES_ASKED_FOR: lambda file: double_makers(file.tree).asked_for,
    kinds.DOUBLES_MADE: lambda file: double_makers(file.tree).taken,
}


def _site(file: SourceFile, line: int) -> CallSite:
    return CallSite(file.path, line, file.function_at(line), source_line(file.path, line))


def _hook_registrations(file: SourceFile) -> Iterator[tuple[int, int, int]]:
    """The lines at which a function registers a hook of this file, other than a constructor; each with the hook's first
    and last line."""
    for call in ast.walk(file.tree):
        if not isinstance(call, ast.Call) or not call.args or not _registers(call):
            continue
        if file.function_at(call.lineno).split(".")[-1] not in _MADE_ONCE:
            yield from ((call.lineno, *lines) for lines in _lines_of(call.args[0], file.tree))


def _registers(call: ast.Call) -> bool:
    """PyTorch's names: ``register_hook``, ``register_forward_hook``, ``register_full_backward_pre_hook`` …"""
    name = name_called(call)
    return name.startswith("register_") and name.endswith("hook")


def _lines_of(hook: ast.expr, tree: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(hook, ast.Call) and name_called(hook) == "partial" and hook.args:
        hook = hook.args[0]
    if isinstance(hook, ast.Lambda):
        yield hook.lineno, hook.end_lineno or hook.lineno
    elif name := last_name(hook):
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS) and getattr(node, "name", "") == name:
                yield node.lineno, node.end_lineno or node.lineno
