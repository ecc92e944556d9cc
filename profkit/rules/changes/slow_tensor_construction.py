"""NumPy joins the list. It would make float64 of Python's floats, so a ``dtype`` has to be given, or arrays."""

from __future__ import annotations

import re

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, refuse_hidden_arguments, text_of
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.scopes import is_set, names_in, scope_of, uses

_OF_A_TYPE = {"FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64", "IntTensor": "int32"}
"""The old constructors, and NumPy's name of the type that they convert to."""
_OF_ITEMS = re.compile(r"^(?:\w+\.)*(?:list|List|Sequence|Iterable|Iterator)\[(.*)\]$")
_LISTED = re.compile(r"^(?:\w+\.)*(?:list|List|Sequence)\[(?:\w+\.)*(?:NDArray|ndarray)\b")
_ARRAYS = frozenset(("array", "asarray", "concatenate", "pad", "resize", "roll", "stack", "take", "tile", "transpose"))
"""Functions of NumPy that always give an array."""


def slow_tensor_construction(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    numpy = text.imported_as("numpy") or "np"
    call = _call_at(text, finding.location.line, numpy)
    joined = _joined(text, call, numpy)
    edits: dict[libcst.CSTNode, Edit] = {call: lambda _: joined}
    if text.imported_as("numpy") is None:
        if {"np", "numpy"} & names_in(text.module):
            raise Refused("the file does not import numpy by its name")
        imported = text.parsed("import numpy as np")
        edits[text.last_import()] = lambda line: libcst.FlattenSentinel([line, imported])
    after = text.edited(edits)
    if not _keeps_type(text, call, numpy):
        raise AltersNumbers("of arrays NumPy keeps the type, but of a list of numbers it makes float64", after)
    return after


def _joined(text: ProgramText, call: libcst.Call, numpy: str) -> libcst.Call:
    """The call with its list joined by NumPy."""
    refuse_hidden_arguments(call)
    if called_name(call) in _OF_A_TYPE:
        return _of_a_type(text, call, numpy)
    if not call.args or call.args[0].keyword is not None:
        raise Refused("the list is not the first argument")
    first, *others = call.args
    joined = libcst.Call(libcst.parse_expression(f"{numpy}.asarray"), [libcst.Arg(first.value)])
    return call.with_changes(args=[first.with_changes(value=joined), *others])


def _keeps_type(text: ProgramText, call: libcst.Call, numpy: str) -> bool:
    """Whether the tensor is of the same type as without NumPy."""
    is_given = called_name(call) in _OF_A_TYPE or Argument("dtype").find(call) is not None
    return is_given or _is_of_arrays(text, call.args[0].value, numpy)


def _call_at(text: ProgramText, line: int, numpy: str) -> libcst.Call:
    """The only call on the line; of several the only one that is given arrays, which take the longest."""
    made = [call for call in text.calls("tensor", "as_tensor", *_OF_A_TYPE) if text.covers(call, line)]
    of_arrays = [call for call in made if call.args and _is_of_arrays(text, call.args[0].value, numpy)]
    return of_arrays[0] if len(of_arrays) == 1 else text.call_at(line, "tensor", "as_tensor", *_OF_A_TYPE)


def _is_of_arrays(text: ProgramText, value: libcst.BaseExpression, numpy: str) -> bool:
    """Whether a list is of what NumPy gives: ``[np.pad(x, 3) for x in data]``, a function that returns one, or what an
    annotation says. NumPy and PyTorch then choose the same type."""
    if isinstance(value, (libcst.Name, libcst.Attribute)):
        return _LISTED.match(_annotation(text, value)) is not None
    if isinstance(value, libcst.ListComp):
        made = value.elt
        return isinstance(made, libcst.Call) and text_of(made.func).startswith(f"{numpy}.") and _is_array(made)
    if not isinstance(value, libcst.Call) or not isinstance(value.func, libcst.Name):
        return False
    named = [one for one in text.nodes(libcst.FunctionDef) if one.name.value == value.func.value]
    if len(named) != 1 or named[0].decorators or named[0].asynchronous is not None:
        return False
    given = [one for one in matchers.findall(named[0].body, matchers.Return()) if isinstance(one, libcst.Return)]
    is_plain = not text.holds(named[0].body, libcst.FunctionDef, libcst.Lambda, libcst.Yield)
    return (
        is_plain
        and bool(given)
        and all(isinstance(one.value, libcst.ListComp) for one in given)
        and all(one.value is not None and _is_of_arrays(text, one.value, numpy) for one in given)
    )


def _annotation(text: ProgramText, value: libcst.BaseExpression) -> str:
    """What an annotation in this file says that a variable, a parameter or an attribute is; of ``for rows in data`` an
    item of what ``data`` is. Empty if there is none, or more than one."""
    if isinstance(value, libcst.Attribute):
        fields = [one for one in text.nodes(libcst.AnnAssign) if text_of(one.target).endswith(value.attr.value)]
        said = [one for one in fields if text_of(one.target).rpartition(".")[2] == value.attr.value]
        return text_of(said[0].annotation.annotation) if len(said) == 1 else ""
    if not isinstance(value, libcst.Name):
        return ""
    scope = scope_of(text, value)
    loops = [one for one in text.nodes(libcst.For) if text_of(one.target) == value.value]
    bound = [one for one in uses(text, scope, value.value) if is_set(text, one)]
    if len(bound) != 1:
        return ""
    if len(loops) == 1 and loops[0].target is bound[0]:
        item = _OF_ITEMS.match(_annotation(text, loops[0].iter))
        return item[1] if item is not None else ""
    around = next(text.ancestors(bound[0]))
    given = around.annotation if isinstance(around, (libcst.Param, libcst.AnnAssign)) else None
    return text_of(given.annotation) if given is not None else ""


def _is_array(call: libcst.Call) -> bool:
    """Not a tensor of an array, and nothing that NumPy makes one number or a list of."""
    return called_name(call) in _ARRAYS and isinstance(call.func, libcst.Attribute)


def _of_a_type(text: ProgramText, call: libcst.Call, numpy: str) -> libcst.Call:
    """``torch.from_numpy(np.asarray(x, dtype=np.float32))`` for ``torch.FloatTensor(x)``."""
    if len(call.args) != 1 or call.args[0].keyword is not None:
        raise Refused("the list is not the only argument")
    joined = libcst.parse_expression(f"{numpy}.asarray(x, dtype={numpy}.{_OF_A_TYPE[called_name(call)]})")
    assert isinstance(joined, libcst.Call)
    first, *others = joined.args
    joined = joined.with_changes(args=[first.with_changes(value=call.args[0].value), *others])
    return libcst.Call(libcst.parse_expression(f"{text.known_as('torch')}.from_numpy"), [libcst.Arg(joined)])
