"""Calls whose only purpose is a log, a file or the screen.

A call whose result is dropped and that writes: by a name that loggers, TensorBoard, files and plots have, or as a
function of the file in which such a call is all that is left behind (`profkit.source.side_effects`). Left out is what
the text lets wait for every n-th step, around the call or in the function itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from profkit.source.side_effects import SideEffects
from profkit.source.syntax import FUNCTIONS, LOOPS, name_called

_WRITES = """
    add_audio add_embedding add_figure add_histogram add_histogram_raw add_image add_images add_pr_curve add_scalar
    add_scalars add_text add_video critical debug dump error imsave imwrite info log log_artifact log_dict log_figure
    log_histogram log_image log_metric log_metrics print savefig set_postfix set_postfix_str warning write writelines
    writerow writerows"""
WRITES = frozenset(_WRITES.split())
_LEAVES = (ast.Return, ast.Continue, ast.Break)


def logged(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and the last line of each such call in a loop or a function."""
    effects = SideEffects(tree, WRITES)
    found = [call for call in _dropped(tree, False) if _only_writes(call, effects)]
    return sorted({(call.lineno, call.end_lineno or call.lineno) for call in found})


def _dropped(node: ast.AST, repeats: bool) -> Iterator[ast.Call]:
    """The calls in loops and functions whose result is dropped, but for those that wait for every n-th step."""
    for child in ast.iter_child_nodes(node):
        if _waits(child):
            if isinstance(child.body[-1], _LEAVES):
                return
            yield from (call for part in child.orelse for call in _dropped(ast.Module([part], []), repeats))
            continue
        if repeats and isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield child.value
        yield from _dropped(child, repeats or isinstance(child, (*LOOPS, *FUNCTIONS)))


def _waits(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether this is a condition that asks for the remainder of a number, as for every n-th step."""
    return isinstance(node, ast.If) and any(isinstance(part, ast.Mod) for part in ast.walk(node.test))


def _only_writes(call: ast.Call, effects: SideEffects) -> bool:
    if not effects.leaves_nothing([ast.Expr(call)]):
        return False
    if name_called(call) in WRITES:
        return True
    function = effects.function_named(name_called(call))
    if function is None or any(isinstance(node, ast.Return) and node.value for node in ast.walk(function)):
        return False
    return not any(map(_waits, ast.walk(function))) and any(
        _only_writes(inner, effects) for inner in _dropped(function, True)
    )
