"""NumPy joins the list. Without a ``dtype`` it would make float64 of Python's floats, so one has to be given."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, refuse_hidden_arguments
from profkit.rules.changes.refusing import Refused

_OF_A_TYPE = {"FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64", "IntTensor": "int32"}
"""The old constructors, and NumPy's name of the type that they convert to."""


def slow_tensor_construction(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "tensor", "as_tensor", *_OF_A_TYPE)
    refuse_hidden_arguments(call)
    numpy = text.imported_as("numpy")
    if numpy is None:
        raise Refused("the file does not import numpy")
    if called_name(call) in _OF_A_TYPE:
        return text.replaced(call, _of_a_type(text, call, numpy))
    if Argument("dtype").find(call) is None:
        raise Refused("the call names no `dtype`, and NumPy would choose float64 for a list of numbers")
    first, *others = call.args
    if first.keyword is not None:
        raise Refused("the list is not the first argument")
    joined = libcst.Call(libcst.parse_expression(f"{numpy}.asarray"), [libcst.Arg(first.value)])
    return text.replaced(call, call.with_changes(args=[first.with_changes(value=joined), *others]))


def _of_a_type(text: ProgramText, call: libcst.Call, numpy: str) -> libcst.Call:
    """``torch.from_numpy(np.asarray(x, dtype=np.float32))`` for ``torch.FloatTensor(x)``."""
    if len(call.args) != 1 or call.args[0].keyword is not None:
        raise Refused("the list is not the only argument")
    joined = libcst.parse_expression(f"{numpy}.asarray(x, dtype={numpy}.{_OF_A_TYPE[called_name(call)]})")
    assert isinstance(joined, libcst.Call)
    first, *others = joined.args
    joined = joined.with_changes(args=[first.with_changes(value=call.args[0].value), *others])
    return libcst.Call(libcst.parse_expression(f"{text.known_as('torch')}.from_numpy"), [libcst.Arg(joined)])
