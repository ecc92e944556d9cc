"""Which settings of PyTorch a program changes, and where, by the syntax tree of a file or of one line.

That is usually long before the loop, where nothing is recorded. The recording says what the settings are.
"""

from __future__ import annotations

import ast

from profkit.source.syntax import calls_named, name_called

_ANOMALY_SWITCHES = frozenset(("set_detect_anomaly", "detect_anomaly"))
_ANOMALY_OPTION = "detect_anomaly"
"""The name of the option in the trainers of libraries."""


def anomaly_mode_setters(tree: ast.AST) -> list[int]:
    """The lines of calls that switch autograd's anomaly mode on, and of options of that name, in a call or a
    dictionary, that are not plainly off."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            options = [word.value for word in node.keywords if word.arg == _ANOMALY_OPTION]
            mode = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")][:1]
            if name_called(node) in _ANOMALY_SWITCHES and not any(map(_is_off, mode)):
                lines.append(node.lineno)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            options = [value for key, value in pairs if getattr(key, "value", None) == _ANOMALY_OPTION]
        else:
            continue
        lines += [value.lineno for value in options if not _is_off(value)]
    return sorted(set(lines))


def sync_debug_setters(tree: ast.AST) -> list[int]:
    """The lines of calls that make PyTorch report waits for a GPU."""
    return [call.lineno for call in calls_named(tree, "set_sync_debug_mode")]


def threads_set(tree: ast.AST) -> tuple[int | None, ...]:
    """The numbers of threads that calls set for an operator; None for a number that the text does not tell."""
    calls = calls_named(tree, "set_num_threads")
    values = [value for call in calls for value in (*call.args, *(word.value for word in call.keywords))]
    return tuple(
        value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None for value in values
    )


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
