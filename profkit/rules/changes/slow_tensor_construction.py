"""NumPy joins the list. Without a ``dtype`` it would make float64 of Python's floats, so one has to be given."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, refuse_hidden_arguments
from profkit.rules.changes.refusing import Refused


def slow_tensor_construction(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "tensor", "as_tensor")
    refuse_hidden_arguments(call)
    numpy = text.imported_as("numpy")
    if numpy is None:
        raise Refused("the file does not import numpy")
    if Argument("dtype").find(call) is None:
        raise Refused("the call names no `dtype`, and NumPy would choose float64 for a list of numbers")
    first, *others = call.args
    if first.keyword is not None:
        raise Refused("the list is not the first argument")
    joined = libcst.Call(libcst.parse_expression(f"{numpy}.asarray"), [libcst.Arg(first.value)])
    return text.replaced(call, call.with_changes(args=[first.with_changes(value=joined), *others]))
