"""A fix as a changed line. It changes only what the line's syntax tree proves, and leaves the rest of the line
alone."""

from __future__ import annotations

import ast

from msgspec import Struct

from profkit.source.syntax import last_name, name_called, parse

_BODIES = ("", "\n pass")
"""What makes a line a statement: nothing, or a body after the head of a block."""
_DETERMINISTIC = frozenset(("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros"))
"""Functions that make a tensor with the same numbers on every device, unlike random ones."""
_ON_GPU = ("cuda",)
_Spot = tuple[int, int]
"""Where a piece of the line begins and ends, in bytes of UTF-8, as syntax trees count."""


class Argument(Struct, frozen=True):
    """An argument that becomes ``after``, or is removed if that is None. It may have any of the literal values ``now``,
    or be missing if ``absent`` is set; at ``position`` it may be passed without its name."""

    name: str
    after: str | None
    now: tuple[bool | int | str | None, ...] = ()
    absent: bool = False
    position: int | None = None


class ChangedCall(Struct, frozen=True):
    """The only call of ``function`` on a line, with these arguments changed."""

    function: str
    arguments: tuple[Argument, ...]


class MadeOnDevice(Struct, frozen=True):
    """A tensor that is made and sent to a device at once, ``torch.zeros(8).to(device)``, is made on the device."""


Rewrite = ChangedCall | MadeOnDevice


def rewrite_line(line: str, rewrite: Rewrite) -> str | None:
    """The changed line; None if the line alone does not prove that this is the change."""
    changed = _made_on_device(line) if isinstance(rewrite, MadeOnDevice) else _with_arguments(line, rewrite)
    return changed if changed is not None and changed != line and _calls(changed) else None


def _with_arguments(line: str, rewrite: ChangedCall) -> str | None:
    for argument in rewrite.arguments:
        calls = [call for call in _calls(line) if name_called(call) == rewrite.function]
        if len(calls) != 1 or _is_open_ended(calls[0]):
            return None
        changed = _with_argument(line, calls[0], argument)
        if changed is None:
            return None
        line = changed
    return line


def _calls(line: str) -> list[ast.Call]:
    """All calls of a line that is a statement, or the head of one."""
    for body in _BODIES:
        try:
            tree = parse(line + body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return []


def _is_open_ended(call: ast.Call) -> bool:
    """Whether it takes arguments that the line does not show: ``f(*given, **options)``."""
    return any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords)


def _with_argument(line: str, call: ast.Call, argument: Argument) -> str | None:
    word = next((word for word in call.keywords if word.arg == argument.name), None)
    by_place = argument.position is not None and argument.position < len(call.args)
    if word is None and not by_place:
        return _appended(line, call, f"{argument.name}={argument.after}") if argument.absent else None
    value = word.value if word is not None else call.args[argument.position or 0]
    if not isinstance(value, ast.Constant) or not any(_is_same(value.value, one) for one in argument.now):
        return None
    if argument.after is not None:
        return _replaced(line, _spot(value), argument.after)
    return None if word is None else _without(line, call, word)


def _is_same(value: object, other: object) -> bool:
    return type(value) is type(other) and value == other


def _appended(line: str, call: ast.Call, text: str) -> str:
    """With one more argument after the others."""
    end = (call.end_col_offset or 0) - 1
    before = line.encode()[:end].rstrip()
    comma = b"" if not (call.args or call.keywords) else b" " if before.endswith(b",") else b", "
    return (before + comma + text.encode() + line.encode()[end:]).decode()


def _without(line: str, call: ast.Call, word: ast.keyword) -> str:
    """Without an argument and the comma between it and its neighbour."""
    spots = sorted([*map(_spot, call.args), *map(_spot, call.keywords)])
    at = spots.index(_spot(word))
    begin, end = spots[at]
    begin = spots[at - 1][1] if at else begin
    end = spots[at + 1][0] if not at and len(spots) > 1 else end
    return _replaced(line, (begin, end), "")


def _spot(node: ast.expr | ast.keyword) -> _Spot:
    return node.col_offset, node.end_col_offset or node.col_offset


def _replaced(line: str, spot: _Spot, text: str) -> str:
    raw = line.encode()
    return (raw[: spot[0]] + text.encode() + raw[spot[1] :]).decode()


def _made_on_device(line: str) -> str | None:
    sent = [(call, device) for call in _calls(line) if (device := _device_sent_to(line, call))]
    if len(sent) != 1:
        return None
    call, device = sent[0]
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(made, ast.Call) or not _is_made_by_torch(made):
        return None
    inner = line.encode()[slice(*_spot(made))].decode()
    (first, *_) = _calls(inner) or (None,)
    return None if first is None else _replaced(line, _spot(call), _appended(inner, first, f"device={device}"))


def _device_sent_to(line: str, call: ast.Call) -> str:
    """The source of the device that a call sends a tensor to; empty for any other call."""
    options = [word.arg for word in call.keywords]
    if not isinstance(call.func, ast.Attribute) or options not in ([], ["non_blocking"]):
        return ""
    if call.func.attr == "cuda" and not call.args:
        return '"cuda"'
    if call.func.attr != "to" or len(call.args) != 1 or not _is_device(call.args[0]):
        return ""
    return line.encode()[slice(*_spot(call.args[0]))].decode()


def _is_device(value: ast.expr) -> bool:
    """A name that ends in ``device``, a device as a string, or ``torch.device(…)``. Types of numbers look different."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.partition(":")[0] in _ON_GPU
    named = value.func if isinstance(value, ast.Call) else value
    return last_name(named).lower().endswith("device")


def _is_made_by_torch(call: ast.Call) -> bool:
    """``torch.zeros(…)`` without a device or an ``out`` tensor."""
    function, given = call.func, {word.arg for word in call.keywords}
    is_torchs = isinstance(function, ast.Attribute) and last_name(function.value) == "torch"
    return (
        is_torchs
        and name_called(call) in _DETERMINISTIC
        and not _is_open_ended(call)
        and not given & {"device", "out", "pin_memory"}
    )
