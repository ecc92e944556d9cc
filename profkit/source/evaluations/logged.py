"""Work whose only purpose is a log, a file, a plot or the screen.

A call whose result is dropped and that writes: by a name that loggers, TensorBoard, files and plots have, or as a
function of the file in which such a call is all that is left behind (`profkit.source.side_effects`). And what is
computed for nothing else. Left out is what the text lets wait for every n-th step, around the call or in the function
itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from profkit.source.evaluations.rarely_used import blocks_of
from profkit.source.evaluations.uses import Uses
from profkit.source.side_effects import SideEffects
from profkit.source.syntax import FUNCTIONS, LOOPS, last_name, name_called, only_names

_LOGS = """
    add_audio add_embedding add_figure add_histogram add_histogram_raw add_image add_images add_pr_curve add_scalar
    add_scalars add_text add_video imsave imshow imwrite log_artifact log_dict log_figure log_histogram log_image
    log_metric log_metrics print savefig set_postfix set_postfix_str set_title set_xlabel set_ylabel tight_layout
    writerow writerows xlabel ylabel"""
_LOGS_TOO = """
    bar critical debug dump error hist info legend log plot scatter title warning write writelines"""
_OF_A_LOG = frozenset(_LOGS_TOO.split())
"""Names that other things have as well: they count on what is named like a log, a file or a plot."""
_LOGS_ARE_NAMED = ("axes", "board", "csv", "file", "json", "log", "plt", "std", "tqdm", "wandb", "writer", "yaml")
_SHORT = frozenset(("ax", "err", "f", "fh", "fp", "out", "pbar", "bar", "run", "sys"))
_DRAWS = frozenset(("close", "figure", "subplots", "cla", "clf", "colorbar"))
"""Besides, of `matplotlib`."""
WRITES = frozenset(_LOGS.split())
_LEAVES = (ast.Return, ast.Continue, ast.Break)


def logged(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and the last line of each such call or assignment in a loop or a function."""
    effects = SideEffects(tree, is_allowed=_writes)
    found: list[ast.stmt | ast.Call] = [call for call in _dropped(tree, False) if _only_writes(call, effects)]
    inside, uses = {id(node) for call in found for node in ast.walk(call)}, Uses()
    for scope, block in blocks_of(tree):
        for statement in reversed(block):  # what is computed of something follows it
            if _is_for(statement, scope, inside, uses) and effects.leaves_nothing([statement]):
                found.append(statement)
                inside |= {id(node) for node in ast.walk(statement)}
    return sorted({(one.lineno, one.end_lineno or one.lineno) for one in found})


def _is_for(statement: ast.stmt, scope: ast.AST, inside: set[int], uses: Uses) -> bool:
    """Whether a statement computes something that is only used ``inside`` what only writes."""
    if not isinstance(statement, ast.Assign) or not any(isinstance(one, ast.Call) for one in ast.walk(statement.value)):
        return False
    names = only_names(statement.targets) or set()
    places = uses.of(scope, names)
    read = [node for node in places if isinstance(node.ctx, ast.Load)]
    assigned = sum(isinstance(node.ctx, ast.Store) for node in places)
    return bool(read) and assigned == len(names) and all(id(node) in inside for node in read)


def _writes(call: ast.Call) -> bool:
    """Whether a call of this name writes, or draws what will be written."""
    name = name_called(call)
    if name in WRITES:
        return True
    of = last_name(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
    is_log = of in _SHORT or any(part in of for part in _LOGS_ARE_NAMED)
    return is_log and (name in _OF_A_LOG or name in _DRAWS)


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
    function = effects.function_named(name_called(call))
    if function is None and _writes(call):
        return True
    if function is None or any(isinstance(node, ast.Return) and node.value for node in ast.walk(function)):
        return False
    return not any(map(_waits, ast.walk(function))) and any(
        _only_writes(inner, effects) for inner in _dropped(function, True)
    )
