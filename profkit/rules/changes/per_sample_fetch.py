"""The loader picks each batch out of the tensors at once, in the same order as before."""

from __future__ import annotations

from contextlib import suppress

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, refuse_hidden_arguments, text_of
from profkit.rules.changes.layout import laid_out
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assigned_value, is_set, scope_of, variables_in

_PARTS = ("Subset", "random_split")
_KNOWN = frozenset(("dataset", "batch_size", "shuffle", "drop_last", "num_workers", "persistent_workers", "pin_memory"))
"""Arguments that mean the same for whole batches. A sampler or a way to collate would not."""
_OURS = frozenset(("batch_size", "shuffle", "drop_last"))
_WAYS = {"True": "RandomSampler", "False": "SequentialSampler"}


def per_sample_fetch(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "DataLoader")
    refuse_hidden_arguments(call)
    for number, given in enumerate(call.args):
        if given.keyword.value not in _KNOWN if given.keyword is not None else number > 2:
            raise Refused(f"the loader takes `{text_of(given.value)}` too, which may rely on single samples")
    size, last = _source(call, "batch_size", 1, "1"), _source(call, "drop_last", None, "False")
    way = _WAYS.get(_source(call, "shuffle", 2, "False"))
    if way is None:
        raise Refused("that line does not say whether the samples are shuffled")
    data = f"{text.known_as('torch')}.utils.data"
    source = f"{data}.BatchSampler({data}.{way}({_counted(text, call)}), {size}, drop_last={last})"
    kept = [given for given in call.args[1:] if given.keyword is not None and given.keyword.value not in _OURS]
    every = [_whole(call.args[0]), "batch_size=None", f"sampler={source}", *map(_whole, kept)]
    return text.replaced(call, laid_out(text, call, text_of(call.func), every))


def _whole(given: libcst.Arg) -> str:
    """An argument with its name, without what separates it from others."""
    value = text_of(given.value)
    return f"{given.keyword.value}={value}" if given.keyword is not None else value


def _source(call: libcst.Call, name: str, position: int | None, default: str) -> str:
    given = Argument(name, position).find(call)
    return default if given is None else text_of(given.value)


def _counted(text: ProgramText, call: libcst.Call) -> str:
    """The source of something as long as the data, which must be a `TensorDataset`, or a part of one."""
    data = call.args[0].value
    if isinstance(data, libcst.Name) and _is_of_tensors(text, data):
        return data.value
    if isinstance(data, libcst.Call) and called_name(data) == "TensorDataset" and data.args and not data.args[0].star:
        counted = data.args[0].value
        if text.holds(counted, libcst.Call, libcst.NamedExpr):
            raise Refused("the data is made on that line: give it a name first")
        return text_of(counted)
    raise Refused("nothing in this file shows that the data is one `TensorDataset`")


def _is_of_tensors(text: ProgramText, data: libcst.BaseExpression) -> bool:
    """Whether data is a `TensorDataset`, also one that a function of the file returns, or a `Subset` of one, be it by
    `random_split`: all of these take lists of indices."""
    if isinstance(data, libcst.Name):
        made = _value_of(text, data)
        return made is not None and _is_of_tensors(text, made)
    if not isinstance(data, libcst.Call):
        return False
    name = called_name(data)
    if name == "TensorDataset":
        return True
    if name in _PARTS:
        return bool(data.args) and not data.args[0].star and _is_of_tensors(text, data.args[0].value)
    known = [one for one in text.nodes(libcst.FunctionDef) if one.name.value == name]
    if len(known) != 1 or not isinstance(data.func, libcst.Name) or known[0].decorators or known[0].asynchronous:
        return False
    given = [one.value for one in text.nodes(libcst.Return) if scope_of(text, one) is known[0]]
    return bool(given) and all(_is_called(one, "TensorDataset") for one in given)


def _value_of(text: ProgramText, data: libcst.Name) -> libcst.BaseExpression | None:
    """What a variable is set to, or the call of `random_split` of which it is one of the parts; None if that is not one
    value, in its function or at the top of the file."""
    scopes = (scope_of(text, data), text.module)
    named = [one for one in text.nodes(libcst.Name) if one.value == data.value and scope_of(text, one) in scopes]
    set_at = [one for one in named if is_set(text, one)]
    if len(set_at) != 1:
        return None
    with suppress(Refused):
        made = assigned_value(text, data.value, data)
        return None if _is_called(made, "random_split") or data.value in variables_in(text, made) else made
    is_part = isinstance(next(text.ancestors(set_at[0])), libcst.Element)
    around = next((parent for parent in text.ancestors(set_at[0]) if isinstance(parent, libcst.Assign)), None)
    return around.value if around is not None and is_part and _is_called(around.value, "random_split") else None


def _is_called(value: libcst.BaseExpression | None, name: str) -> bool:
    return isinstance(value, libcst.Call) and called_name(value) == name
