"""Where a program switches autograd's anomaly mode on, read off its syntax tree.

As a rule that is long before the loop, where nothing is recorded, and often by an option that a trainer of a library
takes. Whether it is on, the recording says.
"""

from __future__ import annotations

import ast

from profkit.source.syntax import name_called

_SWITCHES = frozenset(("set_detect_anomaly", "detect_anomaly"))
_OPTION = "detect_anomaly"


def anomaly_mode_setters(tree: ast.Module) -> list[int]:
    """The lines of calls that switch it on, and of options of that name, in a call or a dictionary, that are not
    plainly off."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = (*node.args, *(word.value for word in node.keywords))
            if name_called(node) in _SWITCHES and not any(map(_is_off, values)):
                lines.append(node.lineno)
            lines += [word.value.lineno for word in node.keywords if word.arg == _OPTION and not _is_off(word.value)]
        elif isinstance(node, ast.Dict):
            lines += [value.lineno for key, value in zip(node.keys, node.values, strict=True)
                      if getattr(key, "value", None) == _OPTION and not _is_off(value)]  # fmt: skip
    return sorted(set(lines))


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
