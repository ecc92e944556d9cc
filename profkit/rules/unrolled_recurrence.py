"""A recurrent cell is called once for each time step, in a Python loop, where one call takes the whole sequence.

What it detects
`nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell` called eight times or more in a row with the same shapes, if nothing
replaces the hidden state between two calls and the next input does not come from the last output. Either the source of
the loop's lines shows this, or the operators do. A decoder that feeds its own prediction back, a state that is masked
or normalised on the way, and steps that begin with a new state need the loop and are not reported.

A cell that the program writes itself counts if its operators are those of an `nn.RNNCell` or `nn.LSTMCell`: linear
layers over input and state, side by side or added, then tanh or ReLU, or the gates of an LSTM. Here the source has to
show that each round calls the same layers once, with an input that the loop picks and the state of the last round.

Why is this bad?
Each time step pays Python and the dispatcher for a dozen operators on a handful of numbers. The product of the input
with its weights needs no earlier step, yet it runs in as many small pieces as there are steps, and so does everything
computed from each output. The backward pass pays the same.

Example
    for t in range(x.shape[1]):
        h, c = cell(x[:, t], (h, c))
        outputs.append(head(h))

Use instead
    lstm = nn.LSTM(features, hidden, batch_first=True)
    states, (h, c) = lstm(x)
    outputs = head(states)

How the saving is estimated
On a GPU, and on a CPU for an LSTM that is not in double precision, one call of cuDNN or oneDNN runs the whole sequence:
the arithmetic of the products stays (their recorded time less the cost of a call), and everything else in the cell and
in Python vanishes, also in the backward pass. Otherwise PyTorch itself runs the cell for each time step, in C++: then
only Python's time and the calls for the input's products vanish. What else the loop computes keeps its time, and
Python's time before it; if the source shows that no input needs it, its calls vanish too, except for those of a loop
inside the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import VIEW, base_name, operators_of
from profkit.derive.operators.operators import has_type
from profkit.patterns import (
    Shapes,
    backward_of,
    by_shapes,
    call_site,
    costliest_lines,
    first_shape,
    group_by_place,
    in_most_steps,
    length_ns,
    name_lines,
    per_step,
    program_operators,
    shapes_of,
    spent_ns,
    works_under,
)
from profkit.patterns.loops.located import (
    in_located_step,
    lines_between,
    located_marks,
    marks_around,
    rounds_by_line,
)
from profkit.patterns.loops.loop_source import CellCall, read_cell_call
from profkit.patterns.shapes import by_operator
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit, call_ns, combine, scale_operators, shrink, shrink_spans
from profkit.savings.pricing import CALL_NS, PRODUCTS, arithmetic_ns
from profkit.savings.written_recurrence import (
    LEAST_ROUNDS,
    UNCERTAINTY,
    call_written_once,
    find_written_loops,
    may_give_state,
)
from profkit.trace import NONE, Bools, Int64s, Rows, distinct, distinct_rows

_CELLS = frozenset(("gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"))
_LAYERS = PRODUCTS | {"linear", "matmul"}
"""Run once for each output of a cell, such as a head."""
_PASSING = frozenset(("_to_copy", "clone", "copy", "empty", "index_put", "to"))
"""Operators that copy a state, to keep it or to convert it. Like views they leave the state as it is."""
_PICKING = frozenset(("narrow", "select", "slice"))
_LEAST_INNER = 3
"""A line that runs so many times in a time step is in a loop of its own; a helper may be called twice."""
_STACKED = (
    " Cells that feed one another are its layers (`num_layers`) where they are of one size, else one after the other."
)
_TO_WEIGHTS = (
    " A linear layer over input and state side by side is split by columns: those of the input are "
    "`weight_ih_l0`, those of the state `weight_hh_l0`. Its bias is `bias_ih_l0`, and `bias_hh_l0` is zero. If "
    "the cell adds two layers, their weights are these two. An embedding before the cell, and a head or a criterion "
    "behind it, are then called once, on the whole sequence."
)
_RNN_INSTEAD = "Use `nn.RNN(…, nonlinearity='{}')`, which takes the whole sequence in one call." + _TO_WEIGHTS
_LSTM_INSTEAD = (
    "Use `nn.LSTM`, which takes the whole sequence in one call, with its gates in the order input, forget, "
    "cell, output." + _TO_WEIGHTS
)
_ONCE = " What else the loop computes of the outputs is then called once, on all of them."


class _CellLoop(Struct, frozen=True):
    """One run of time steps: the cells' calls, what else the loop computes, and which of the two one call can replace.
    ``others_once`` are those of the others that one call for the sequence can replace; ``python_ns`` is the time before
    the rest, in which Python prepares their calls."""

    cells: Rows
    others: Rows
    in_one_call: bool
    others_once: Bools
    python_ns: int


class _Shown(Struct, frozen=True):
    """What the source shows of the lines that call a cell: masks over the call sites, with a last entry for "no
    line"."""

    fed_back: Bools
    independent: Bools
    kept: Bools


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def unrolled_recurrence(facts: Facts) -> Suspicions:
    """Find runs of recurrent cells and report them by place."""
    for loops, cells in group_by_place(facts, list(_find_loops(facts)), lambda loop: loop.cells, 3):
        if not in_most_steps(facts, cells):
            continue
        names = distinct(facts.trace.events.name_code[cells])
        kind = base_name(facts.trace.names[names[0]]).removesuffix("_cell").partition("_")[0].upper()
        places = costliest_lines(facts, cells)
        longest = max(len(loop.cells) for loop in loops)
        once = any(loop.others_once.any() for loop in loops)
        yield Suspicion(
            message=f"`nn.{kind}Cell` is called {round(per_step(facts, cells)):,} times a step, once for each time "
            f"step{' at each of these lines' * bool(places.also)}, though the whole sequence is there from the "
            "start.",
            fix=f"Use `nn.{kind}`, which takes the whole sequence in one call. Its `weight_ih_l0`, `weight_hh_l0`, "
            "`bias_ih_l0` and `bias_hh_l0` have the shapes of the cell's parameters: copy them."
            + _STACKED * bool(places.also)
            + _ONCE * once,
            rows=cells,
            edit=_call_once(facts, loops),
            confidence=0.85,
            places=places,
            evidence={"calls_per_step": round(per_step(facts, cells)), "longest_run": longest},
        )
    yield from _suspect_written_cells(facts)


def _suspect_written_cells(facts: Facts) -> Suspicions:
    """The same for cells that the program writes itself, by the line of their loop."""
    found = list(find_written_loops(facts))
    for site in sorted({loop.site for loop in found}):
        loops = [loop for loop in found if loop.site == site]
        rows = np.sort(np.concatenate([loop.operators for loop in loops]))
        if not in_most_steps(facts, rows):
            continue
        lstm = loops[0].cell == "LSTM"
        rounds = sum(loop.rounds for loop in loops)
        count = round(rounds / facts.steps.measured_count)
        yield Suspicion(
            message=f"A hand-written recurrent cell, the formula of `nn.{'LSTM' if lstm else 'RNN'}Cell`, runs "
            f"{count:,} times a step, once for each time step. The whole sequence is there from the start.",
            fix=_LSTM_INSTEAD if lstm else _RNN_INSTEAD.format(loops[0].cell),
            rows=rows,
            count=count,
            edit=call_written_once(facts, loops),
            confidence=0.8,
            places=name_lines(facts, [site]),
            evidence={"calls_per_step": count, "longest_run": max(loop.rounds for loop in loops)},
        )


def _find_loops(facts: Facts) -> Iterator[_CellLoop]:
    """Runs of cells within a step, each of which takes the last one's state."""
    rows = program_operators(facts)
    at = np.flatnonzero(operators_of(facts.trace, _CELLS)[rows])
    if len(at) < LEAST_ROUNDS:
        return
    replaces, computes = _between(facts, rows, at)
    total_replacing = np.concatenate([[0], np.cumsum(replaces)])
    total_computing = np.concatenate([[0], np.cumsum(computes)])
    shown = _read_source(facts)
    site = facts.lines.site[rows[at]]
    step = facts.step_of(rows[at])
    here, after = at[:-1], at[1:]
    keeps = (total_replacing[after] == total_replacing[here + 1]) | (shown.kept[site[:-1]] & shown.kept[site[1:]])
    given = total_computing[after] == total_computing[here + 1]
    given |= _takes_next_of_sequence(facts, rows, after) | shown.independent[site[1:]]
    joined = (step[:-1] == step[1:]) & keeps & given & ~shown.fed_back[site[1:]]
    double = has_type(facts.trace, "double")
    lstm = operators_of(facts.trace, frozenset(("lstm_cell",)))
    for part in np.split(at, np.flatnonzero(~joined) + 1):
        cells = rows[part]
        repeats = np.unique(facts.trace.events.dims_code[cells], return_counts=True)[1].max()
        if repeats >= LEAST_ROUNDS:
            inside = slice(part[0], part[-1])
            library = facts.device.present or bool((lstm & ~double)[cells].all())
            others = rows[inside][(computes | replaces)[inside]]
            once = ~_in_inner_loop(facts, cells, others)
            once &= shown.independent[facts.lines.site[cells]].all()
            yield _CellLoop(cells, others, library, once, _python_before_ns(facts, rows[inside], others[~once]))


def _in_inner_loop(facts: Facts, cells: Rows, others: Rows) -> Bools:
    """Which of the other operators stand in a line that runs several times in each time step. What a loop over rows or
    heads does in all time steps takes as long if it is done at once."""
    marks, lines = facts.trace.events.site[located_marks(facts)], len(facts.callsites)
    runs = np.bincount(marks[(marks >= 0) & (marks < lines)], minlength=lines + 1)  # the last is no line
    site = np.where(facts.lines.site < lines, facts.lines.site, NONE)
    steps = max(1, int(runs[site[cells]].max()))
    repeated: Bools = runs[site[others]] >= _LEAST_INNER * steps
    return repeated


def _python_before_ns(facts: Facts, rows: Rows, staying: Rows) -> int:
    """The time between each of the ``staying`` operators and the one before it."""
    place = np.searchsorted(rows, staying)
    place = place[place > 0]
    between = length_ns(facts, facts.tree.end_ns[rows[place - 1]], facts.trace.events.start_ns[rows[place]])
    return int(between.clip(min=0).sum())


def _read_source(facts: Facts) -> _Shown:
    """What the source shows of each line that calls a cell. A line may run in several loops; then all of them must
    agree."""
    shown = _Shown(*(np.zeros(len(facts.callsites) + 1, dtype=bool) for _ in range(3)))
    called = in_located_step(facts, facts.operators.rows)
    marks = distinct(marks_around(facts)[called[operators_of(facts.trace, _CELLS)[called]]])
    found: dict[int, list[CellCall]] = {}
    for rounds in rounds_by_line(facts, marks[marks >= 0], LEAST_ROUNDS):
        first, last = int(rounds[0]), int(rounds[-1])
        site = int(facts.trace.events.site[first])
        if (line := call_site(facts, site)) is not None:
            lines = lines_between(facts, first, last)
            found.setdefault(site, []).append(read_cell_call(line.source, lines))
    for code, calls in found.items():
        shown.fed_back[code] = any(call.feeds_back for call in calls)
        shown.independent[code] = all(call.feeds_back is False for call in calls)
        shown.kept[code] = all(call.keeps_state for call in calls)
    return shown


def _between(facts: Facts, rows: Rows, cells: Rows) -> tuple[Bools, Bools]:
    """Which operators may replace the hidden state, and which of the others compute something of their own. Only an
    operator that may return a tensor of the state's shape can replace it."""
    first, _ = distinct_rows(facts.trace.events.dims_code[rows[cells]])
    states = {tuple(state) for row in rows[cells][first].tolist() for state in shapes_of(facts, row)[1:2] if state}
    replaces = by_operator(facts, rows, lambda name, shapes: may_give_state(name, shapes, states))
    passing = operators_of(facts.trace, VIEW, _PASSING, _CELLS)[rows]
    return replaces & ~passing, ~replaces & ~passing


def _takes_next_of_sequence(facts: Facts, rows: Rows, cells: Rows) -> Bools:
    """Whether a cell's input was picked, just before the call, from a sequence of at least `LEAST_ROUNDS` times its
    size."""
    before = rows[cells - 1]
    taken, given = (by_shapes(facts, part, _size_and_width, of=int).reshape(-1, 2).T for part in (before, rows[cells]))
    fits = (taken[1] > 0) & (taken[1] == given[1]) & (taken[0] >= LEAST_ROUNDS * given[0])
    picked: Bools = operators_of(facts.trace, _PICKING)[before] & fits
    return picked


def _size_and_width(shapes: Shapes) -> tuple[int, int]:
    """The number of elements of the first tensor, and the size of its last dimension."""
    shape = first_shape(shapes)
    return (math.prod(shape), shape[-1]) if shape else (0, 0)


def _call_once(facts: Facts, loops: list[_CellLoop]) -> Edit:
    """Each loop takes the time of one call for the sequence, besides what else it computes; so does its backward."""
    start = np.array([facts.trace.events.start_ns[loop.cells[0]] for loop in loops])
    end = np.array([facts.tree.end_ns[loop.cells[-1]] for loop in loops])
    kept = np.array(
        [_kept_ns(facts, loop).sum() + _kept_of_others_ns(facts, loop).sum() + loop.python_ns for loop in loops]
    )
    parts = [shrink_spans(start, end, kept, UNCERTAINTY)]
    cells = _together(loop.cells for loop in loops if loop.in_one_call)
    nodes = backward_of(facts, cells)
    if facts.device.present:
        share = _share_of_products(facts, cells)
        parts += [
            scale_operators(facts, rows, share, UNCERTAINTY, launch_kept=1 / len(cells)) for rows in (cells, nodes)
        ]
    else:
        others = _together(loop.others[loop.others_once] for loop in loops)
        layers = backward_of(facts, others[operators_of(facts.trace, _LAYERS)[others]])
        parts += [shrink(rows, arithmetic_ns(facts, rows), UNCERTAINTY) for rows in (nodes, layers)]
        parts.append(_join_input_products(facts, _together(loop.cells for loop in loops if not loop.in_one_call)))
    return combine(parts)


def _together(parts: Iterable[Rows]) -> Rows:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _join_input_products(facts: Facts, cells: Rows) -> Edit:
    """Where PyTorch itself runs the cell for each time step, the backward pass of a cell has two products, of the input
    and of the state. The input's become one for the sequence, so only their arithmetic stays."""
    nodes = backward_of(facts, cells)
    products = nodes[facts.tree.holding(operators_of(facts.trace, PRODUCTS))[nodes]]
    return shrink(products, (spent_ns(facts, products) + arithmetic_ns(facts, products)) // 2, UNCERTAINTY)


def _kept_ns(facts: Facts, loop: _CellLoop) -> Int64s:
    """What stays of each cell on the host: on a device a share of one call, with a CPU library the arithmetic,
    otherwise all but the call of the input's product."""
    spent = spent_ns(facts, loop.cells)
    if facts.device.present:
        return spent // len(spent)
    return arithmetic_ns(facts, loop.cells) if loop.in_one_call else (spent - CALL_NS).clip(min=0)


def _kept_of_others_ns(facts: Facts, loop: _CellLoop) -> Int64s:
    """What stays on the host of the loop's other operators: all, or what one call for the sequence would take."""
    spent = spent_ns(facts, loop.others)
    if facts.device.present:
        once = spent // int(np.unique(facts.lines.site[loop.cells], return_counts=True)[1].max())
    else:
        products = operators_of(facts.trace, _LAYERS)[loop.others]
        once = np.where(products, arithmetic_ns(facts, loop.others), (spent - round(call_ns(facts))).clip(min=0))
    return np.where(loop.others_once, once, spent)


def _share_of_products(facts: Facts, cells: Rows) -> float:
    """The share that products have in the cells' time on the device."""
    inside = facts.tree.under(facts.trace.mask_of(cells))
    duration = facts.trace.events.duration_ns
    products = duration[works_under(facts, operators_of(facts.trace, PRODUCTS) & inside)].sum()
    return float(products / max(duration[works_under(facts, inside)].sum(), 1))
