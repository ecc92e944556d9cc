"""Recurrent cells that a program writes itself: operators that together compute what `nn.RNNCell` or `nn.LSTMCell` do.

A form is an order of operators, one letter each, with only views in between, and their shapes: either one product over
a concatenation of input and state, or two products that are added, followed only by results of the state's shape. The
recording does not show which result goes into which operator. So a form has exactly the formula's operators in a
possible order, and other work on something of the state's shape must be found by other means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import VIEW, base_name, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.patterns.shapes import Shapes
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.statistics import distinct_rows

LETTERS = {
    "add": "A",
    "cat": "C",
    "concat": "C",
    "linear": "L",
    "mul": "M",
    "relu": "R",
    "sigmoid": "S",
    "tanh": "T",
}
PASSING = VIEW | {"_to_copy", "clone", "copy", "embedding", "to"}
"""They leave a state as it is, or look up an input."""


class Form(Struct, frozen=True):
    """One way to write a cell: which cell it is, its operators' letters with their counts, and the order of these
    letters. ``gates`` come out of each product side by side."""

    cell: str
    letters: str
    order: str
    gates: int = 1


FORMS = (
    Form("LSTM", "CLLLLSSSTTMMMA", "C[LSTM]+A[LS]*TS?M"),
    Form("LSTM", "LLLLLLLLAAAAASSSTTMMM", "(?:LLA[ST]|M)+A(?:LLAS)?TS?M"),
    Form("LSTM", "CLSSSTTMMMA", "CL[STM]+AS?TS?M", gates=4),
    Form("LSTM", "LLASSSTTMMMA", "LLA[STM]+AS?TS?M", gates=4),
    Form("tanh", "CLT", "CLT"),
    Form("relu", "CLR", "CLR"),
    Form("tanh", "LLAT", "LLAT"),
    Form("relu", "LLAR", "LLAR"),
)
"""Longer forms first: what they match is not part of a shorter one."""


class WrittenCells(Struct, frozen=True):
    """Cells among some operators. ``owner`` is the number of each operator's cell, or `NONE`. ``form``, ``batch`` and
    ``hidden`` (the sizes of its state) are per cell. ``of_input`` are products that take no state, so they could be one
    product for the whole sequence."""

    owner: Int64s
    form: Int64s
    batch: Int64s
    hidden: Int64s
    of_input: Bools


def find_written_cells(facts: Facts, rows: Rows) -> WrittenCells:
    """Search operators that the program called, in time order."""
    owner, of_input = np.full(len(rows), NONE, dtype=np.int64), np.zeros(len(rows), dtype=bool)
    places = np.flatnonzero(~operators_of(facts.trace, PASSING)[rows])
    letters = _letters(facts, rows[places])
    found: list[tuple[int, int, int, int]] = []
    for number, form in enumerate(FORMS):
        for starts, (batch, hidden, inputs) in _fitting(facts, rows[places], letters, form):
            for start in starts.tolist():
                members = places[start : start + len(form.letters)]
                if (owner[members] == NONE).all():
                    owner[members] = len(found)
                    of_input[members[list(inputs)]] = True
                    found.append((number, batch, hidden, int(members[0])))
    order = sorted(range(len(found)), key=lambda i: found[i][3])
    rank = np.empty(len(found) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(found)), NONE
    forms, batches, sizes = np.array([found[i][:3] for i in order], dtype=np.int64).reshape(-1, 3).T
    return WrittenCells(rank[owner], forms, batches, sizes, of_input)


def _letters(facts: Facts, rows: Rows) -> str:
    """One letter per operator, `-` if no form has it."""
    names = facts.trace.events.name_code[rows]
    known, inverse = np.unique(names, return_inverse=True)
    letters = np.array([LETTERS.get(base_name(facts.trace.names[code]), "-") for code in known], dtype="U1")
    return "".join(letters[inverse].tolist())


def _fitting(
    facts: Facts, rows: Rows, letters: str, form: Form
) -> Iterator[tuple[Rows, tuple[int, int, tuple[int, ...]]]]:
    """Where operators of this form begin, grouped by their shapes."""
    length, counts, order = len(form.letters), Counter(form.letters), re.compile(form.order)
    alphabet = "".join(counts)
    windows = re.finditer(f"(?=({form.letters[0]}[{alphabet}]{{{length - 1}}}))", letters)
    starts = np.array([at.start() for at in windows if Counter(at[1]) == counts and order.fullmatch(at[1])], dtype=int)
    if not starts.size:
        return
    dims = facts.trace.events.dims_code[rows[starts[:, None] + np.arange(length)]]
    first, kind = distinct_rows(*dims.T)
    for number, which in enumerate(first.tolist()):
        shapes = [parse_dims(facts.trace.text_of(code)) if code >= 0 else [] for code in dims[which].tolist()]
        begin = int(starts[which])
        fit = _fit(form, letters[begin : begin + length], shapes)
        if fit is not None:
            yield starts[kind == number], fit


def _fit(form: Form, letters: str, shapes: list[Shapes]) -> tuple[int, int, tuple[int, ...]] | None:
    """Batch and hidden size, and which operators are products of the input alone; None if the shapes do not agree."""
    tensors = [[tuple(shape) for shape in of_one if shape] for of_one in shapes]
    state = tensors[-1][0] if tensors[-1] else ()
    if len(state) != 2:
        return None
    batch, hidden = state
    gates = (batch, form.gates * hidden)
    joining = {at.end() - 1 for at in re.finditer("LLA", letters)}
    for i, letter in enumerate(letters):
        expected = gates if i in joining else state
        wanted = 2 if letter in "AM" else 1
        if letter not in "CL" and (len(tensors[i]) != wanted or any(shape != expected for shape in tensors[i])):
            return None
    products = [i for i, letter in enumerate(letters) if letter == "L"]
    if any(not _is_product(tensors[i], batch, gates[1]) for i in products):
        return None
    widths = [tensors[i][0][1] for i in products]
    if letters[0] == "C":
        return (batch, hidden, ()) if _is_joined(tensors[0], state, set(widths)) else None
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if len({tuple(sorted(pair)) for pair in pairs}) > 1 or hidden not in pairs[0]:
        return None
    inputs = tuple(products[2 * i + (pair[0] == hidden and pair[1] != hidden)] for i, pair in enumerate(pairs))
    return batch, hidden, inputs


def _is_product(tensors: list[tuple[int, ...]], batch: int, width: int) -> bool:
    """A `linear` of rows, with a weight and at most a bias, that gives this many columns."""
    if len(tensors) not in {2, 3} or len(tensors[0]) != 2 or len(tensors[1]) != 2:
        return False
    return tensors[0][0] == batch and tensors[1] == (width, tensors[0][1])


def _is_joined(parts: list[tuple[int, ...]], state: tuple[int, ...], widths: set[int]) -> bool:
    """Whether an input and a state are side by side, together as wide as each product's input."""
    if len(parts) != 2 or state not in parts or any(len(part) != 2 or part[0] != state[0] for part in parts):
        return False
    return widths == {parts[0][1] + parts[1][1]}
