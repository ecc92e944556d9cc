"""Numbers become float32 where they enter. Where the program asks for doubles itself, that is its author's choice."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import (
    Edit,
    ProgramText,
    called_name,
    followed_by,
    refuse_hidden_arguments,
    text_of,
    with_new_argument,
)
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.scopes import mutated, scope_of
from profkit.rules.changes.sharing import root_of

_FROM_NUMPY = ("from_numpy", "as_tensor", "tensor")
_WIDE = frozenset(("torch.float64", "torch.double", '"float64"', '"double"'))
_ASKED = "the program asks for float64 itself"


def float64_compute(text: ProgramText, finding: Finding) -> bytes:
    asked = _asked(text)
    if asked:
        raise AltersNumbers(_ASKED, text.edited({**asked, **_entering(text, finding)}))
    edits = _entering(text, finding)
    if not edits:
        raise Refused("where the doubles come from does not show on that line")
    return text.edited(edits)


def _asked(text: ProgramText) -> dict[libcst.CSTNode, Edit]:
    """Where the file says that it wants float64: ``.double()``, ``torch.float64``."""
    found: dict[libcst.CSTNode, Edit] = {}
    for call in text.calls("double"):
        if isinstance(call.func, libcst.Attribute) and not call.args:
            found[call.func.attr] = lambda _: libcst.Name("float")
    for kind in (libcst.Attribute, libcst.SimpleString):
        for node in text.nodes(kind):
            if text_of(node) in _WIDE and not isinstance(next(text.ancestors(node)), libcst.Attribute):
                found[node] = lambda _: libcst.parse_expression(f"{text.known_as('torch')}.float32")
    return found


def _entering(text: ProgramText, finding: Finding) -> dict[libcst.CSTNode, Edit]:
    """The calls on the lines of the finding that make tensors of doubles out of NumPy's."""
    assert finding.location is not None
    here = [one.line for one in (finding.location, *finding.also) if one.file == finding.location.file]
    calls = [call for call in text.calls(*_FROM_NUMPY) if any(text.covers(call, line) for line in here)]
    found = [call for call in calls if not _says_type(call) and not _is_cast(text, call)]
    for call in found:
        refuse_hidden_arguments(call)
        if sum(text.line_of(call) == text.line_of(other) for other in found) > 1:
            raise Refused("several tensors are made on that line, and which of them hold doubles does not show")
        root = root_of(call.args[0].value) if call.args else None
        if root is not None and mutated(text, scope_of(text, call), {root}):
            raise Refused(f"`{root}` is changed in place, and the tensor shares its memory")
    return dict.fromkeys(found, _as_float)


def _as_float(call: libcst.Call) -> libcst.Call:
    if called_name(call) == "from_numpy" or not isinstance(call.func, libcst.Attribute):
        return followed_by(call, "float")
    return with_new_argument(call, "dtype", f"{text_of(call.func.value)}.float32")


def _says_type(call: libcst.Call) -> bool:
    return any(given.keyword is not None and given.keyword.value == "dtype" for given in call.args)


def _is_cast(text: ProgramText, call: libcst.Call) -> bool:
    around = next(text.ancestors(call))
    return isinstance(around, libcst.Attribute) and around.attr.value in ("float", "double", "half", "long", "int")
