"""The loader picks each batch out of the tensors at once, in the same order as before."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, called_name, elements_of, refuse_hidden_arguments, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import scope_of

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
        raise Refused("whether the samples are shuffled does not show on that line")
    data = f"{text.known_as('torch')}.utils.data"
    source = f"{data}.BatchSampler({data}.{way}({_counted(text, call)}), {size}, drop_last={last})"
    kept = [given for given in call.args[1:] if given.keyword is not None and given.keyword.value not in _OURS]
    new = [_named("batch_size", "None"), _named("sampler", source)]
    first = call.args[0].with_changes(comma=libcst.MaybeSentinel.DEFAULT)
    plain = [one.with_changes(comma=libcst.MaybeSentinel.DEFAULT) for one in kept]
    return text.replaced(call, call.with_changes(args=[first, *new, *plain]))


def _source(call: libcst.Call, name: str, position: int | None, default: str) -> str:
    given = Argument(name, position).find(call)
    return default if given is None else text_of(given.value)


def _counted(text: ProgramText, call: libcst.Call) -> str:
    """The source of something as long as the data, which must be a `TensorDataset`, or a part of one."""
    data = call.args[0].value
    if isinstance(data, libcst.Name) and _is_of_tensors(text, data, call):
        return data.value
    if isinstance(data, libcst.Call) and called_name(data) == "TensorDataset" and data.args and not data.args[0].star:
        counted = data.args[0].value
        if text.holds(counted, libcst.Call, libcst.NamedExpr):
            raise Refused("the data is made on that line: give it a name first")
        return text_of(counted)
    raise Refused("that the data is one `TensorDataset` does not show in this file")


def _is_of_tensors(text: ProgramText, data: libcst.BaseExpression, near: libcst.CSTNode) -> bool:
    """Whether data is a `TensorDataset`, or a `Subset` of one, be it by `random_split`: both take lists of indices."""
    if isinstance(data, libcst.Name):
        scope = scope_of(text, near)
        parameters = [one for one in text.nodes(libcst.Param) if scope_of(text, one) is scope]
        made = [one for one in text.nodes(libcst.Assign) if any(data.value in _names(to.target) for to in one.targets)]
        if len(made) != 1 or len(made[0].targets) != 1 or any(one.name.value == data.value for one in parameters):
            return False
        is_part = isinstance(made[0].targets[0].target, libcst.Tuple)
        return (not is_part or _is_called(made[0].value, "random_split")) and _is_of_tensors(
            text, made[0].value, made[0]
        )
    if not isinstance(data, libcst.Call) or not data.args or data.args[0].star:
        return False
    is_part = _is_called(data, "Subset") or _is_called(data, "random_split")
    return _is_called(data, "TensorDataset") or (is_part and _is_of_tensors(text, data.args[0].value, near))


def _names(target: libcst.BaseExpression) -> set[str]:
    parts = elements_of(target) if isinstance(target, (libcst.Tuple, libcst.List)) else [target]
    return {text_of(one) for one in parts}


def _is_called(value: libcst.BaseExpression, name: str) -> bool:
    return isinstance(value, libcst.Call) and called_name(value) == name


def _named(name: str, source: str) -> libcst.Arg:
    equal = libcst.AssignEqual(libcst.SimpleWhitespace(""), libcst.SimpleWhitespace(""))
    return libcst.Arg(libcst.parse_expression(source), keyword=libcst.Name(name), equal=equal)
