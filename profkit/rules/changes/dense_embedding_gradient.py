"""The table's gradient holds only the rows that were looked up: ``sparse=True`` where the table is made."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain

import libcst
from libcst import matchers

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, Edit, ProgramText, called_name, text_of, with_argument
from profkit.rules.changes.refusing import AlreadyMade, Refused
from profkit.rules.changes.scopes import assigned_value

_SPARSE = Argument("sparse")
_TABLES = ("Embedding", "EmbeddingBag")
_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
_DENSE = {
    "SGD": (Argument("momentum", 2), Argument("weight_decay", 4)),
    "Adagrad": (Argument("weight_decay", 3),),
}
"""Optimizers that take sparse gradients, and their arguments that must be zero for these. Here the places are those of
``torch.optim``."""
_OTHERWISE = "Adam takes no sparse gradients: SparseAdam would train the table, but not as Adam does"


def dense_embedding_gradient(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    line = finding.location.line
    if "SparseAdam` updates these" in finding.fix:
        raise Refused(_OTHERWISE)
    _refuse_clipped(text)
    _refuse_dense(text, next(name for name in _DENSE if f"and {name} updates these" in finding.fix))
    looked_up = [call for call in text.calls_at(line, "embedding") if _is_functional(text, call)]
    if looked_up:
        return text.edited(dict.fromkeys(looked_up, _made_sparse))
    rows = finding.evidence.get("rows")
    tables = [table for table in _tables_at(text, line) if _may_have(table, rows)]
    if not tables:
        raise Refused("the file does not show where the table of that line is made")
    made: dict[libcst.CSTNode, Edit] = {table: _made_sparse for table in tables if not _is_sparse(table)}
    if not made:
        raise AlreadyMade("the tables of that line are made with `sparse=True`")
    for table in tables:
        with_argument(table, _SPARSE, "True")  # refused here, the reason says why
    return text.edited(made)


def _made_sparse(call: libcst.Call) -> libcst.Call:
    return with_argument(call, _SPARSE, "True")


def _is_sparse(call: libcst.Call) -> bool:
    given = _SPARSE.find(call)
    return given is not None and text_of(given.value) == "True"


def _refuse_clipped(text: ProgramText) -> None:
    for call in text.calls(*_CLIPS):
        raise Refused(f"line {text.line_of(call)} clips gradients, which takes dense ones")


def _refuse_dense(text: ProgramText, optimizer: str) -> None:
    """Raise `Refused` if a call in the file may make the optimizer one that takes dense gradients alone. In the
    recording none did; a variable may have another value in other runs."""
    for call in chain(text.calls(optimizer), text.calls("partial")):
        is_partial = called_name(call) == "partial"
        if is_partial and not (call.args and text_of(call.args[0].value).rpartition(".")[2] == optimizer):
            continue
        for one in _DENSE[optimizer]:
            given = Argument(one.name, None if is_partial else one.position).find(call)
            if given is not None and not _is_zero(given.value):
                said = f"`{one.name}` is `{text_of(given.value)}`"
                raise Refused(f"{said}: {optimizer} takes sparse gradients only without it")


def _is_zero(value: libcst.BaseExpression) -> bool:
    return isinstance(value, (libcst.Integer, libcst.Float)) and float(text_of(value).replace("_", "")) == 0


def _is_functional(text: ProgramText, call: libcst.Call) -> bool:
    with suppress(Refused):
        return text_of(call.func) == f"{text.known_as('torch.nn.functional')}.embedding"
    return False


def _tables_at(text: ProgramText, line: int) -> list[libcst.Call]:
    """Where the tables are made that the line names, each once: what a variable or an attribute is set to, or a part of
    that, as in `nn.Sequential` or a list of tables."""
    found: dict[libcst.Call, None] = {}
    for node in (*text.nodes(libcst.Name), *text.nodes(libcst.Attribute)):
        if text.covers(node, line) and text.line_of(node) == line:
            with suppress(Refused):
                made = assigned_value(text, text_of(node), node)
                found.update(dict.fromkeys(_tables_in(made)))
    return [*found]


def _tables_in(value: libcst.BaseExpression) -> list[libcst.Call]:
    calls = matchers.findall(value, matchers.Call())
    return [one for one in calls if isinstance(one, libcst.Call) and _is_table(one)]


def _is_table(call: libcst.Call) -> bool:
    """`nn.Embedding(…)`, or `nn.Embedding.from_pretrained(…)`."""
    made = text_of(call.func).removesuffix(".from_pretrained")
    return made.rpartition(".")[2] in _TABLES


def _may_have(table: libcst.Call, rows: object) -> bool:
    """Whether a table may have so many rows: only a number in the text tells."""
    if called_name(table) == "from_pretrained" or not table.args:
        return True
    given = Argument("num_embeddings", 0).find(table)
    if given is None or not isinstance(given.value, libcst.Integer):
        return True
    return int(text_of(given.value).replace("_", ""), 0) == rows
