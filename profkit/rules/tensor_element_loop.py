"""Python loops over the elements or rows of a tensor, several operators on a handful of numbers each time round.

What it detects
Lines that run, sixty-four times or more in a step, operators that take one element or row out of a tensor (`x[i]`,
`x[i, j]`, `for v in x`), together with operators on at most a few thousand numbers and nothing larger in between. Also
loops over few rows that run often, thirty-two rounds or more in a step together, if the source of their lines shows
that no round needs another's result; these may multiply tiny matrices, or write each row of a result. A function that
takes the same elements in each call (`x[0]`, `x[1]`), or calls itself, is no loop over elements. Other loops around a
layer or a product of matrices (time steps of a recurrent network, samples through a model) are something else
and are not reported. Neither is what a DataLoader does to make a batch, nor a loop over rows that its source shows to
be a recurrence (`last = x[t] + decay * last`), whose rounds have to come one after the other. Text that is made of a
tensor is such a loop too, inside PyTorch: it reads number by number. So is a function of Python that is given a tensor,
such as `max(x)` or `sum(x)`.

Why is this bad?
Each `x[i]` makes a new tensor, and each sum of two of them is an operation with all its bookkeeping: a microsecond for
what takes a nanosecond inside one operation over the whole tensor, and on a GPU a launch.

Example
    for i in range(len(energy)):
        score = score + weight[i] * energy[i]

Use instead
    score = score + (weight * energy).sum()

How the saving is estimated
The stretch from the first to the last operator of the loop, with Python's time, keeps one n-th of its time for n
rounds: one operator over the whole tensor costs about as much as one over a few numbers. The backward nodes shrink
alike, those of gradients that the loop itself takes included. Of a loop over few rows, each run keeps the time of one
round. Where text is made of tensors (`print(x)`, an f-string for a log), all of it goes, up to the next operator of
another line.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.core.marks import UNMARKED
from profkit.derive.families import ELEMENTWISE, MATRIX, VIEW, operators_of
from profkit.derive.operators.operators import has_type
from profkit.derive.timeline.intervals import stretches, union
from profkit.patterns import (
    Places,
    by_shapes,
    call_site,
    group_by_place,
    in_most_steps,
    length_ns,
    locations_of,
    name_lines,
    program_elementwise,
    program_operators,
    runs_inside_a_call,
    sites_by_time,
    times_per_step,
)
from profkit.patterns.calls import in_a_step
from profkit.patterns.loops.accesses import BY_NUMBER, ITERATING, MAX_GAP_NS, TINY_ELEMENTS, count_accesses
from profkit.patterns.loops.independent_rounds import rounds_recur
from profkit.patterns.loops.located import located_marks, marks_around, sites_between
from profkit.patterns.loops.loop_source import nameless_functions
from profkit.patterns.places.events import call_sites
from profkit.patterns.row_loops import RowLoop, find_row_loops
from profkit.rules.base import (
    LOW_FROM,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.savings import Edit, combine, shrink_spans
from profkit.savings.pricing import one_round_ns, scale_beside_spans
from profkit.savings.step_time import undisturbed_in_step_ns
from profkit.source.syntax import LOOPS, name_called, parse_piece
from profkit.source.texts import makes_text
from profkit.trace import Bools, Int64s, Rows, among, distinct, distinct_rows, median

_MIN_ACCESSES = 64
"""Unrolled loops over heads, layers or the parts of a state are shorter, and 64 times a few microseconds show."""
_MIN_ROUNDS = 32
"""Two accesses in each of 32 rounds. Many accesses in few rounds are a loop over heads, or over the images or sequences
of a batch, which differ in size: its body works on whole tensors."""
_MIN_RUN = 16
"""Accesses without anything large in between, so that a few reads between layers do not add up to a loop."""
_NEAR_LINES = 3
"""Lines this close in one function are one loop's body."""
_MOST_WRITTEN_OUT = 7
"""Places in a tensor that a function without a loop may name one by one."""
_METHOD_OF = {
    "all": "x.all()",
    "any": "x.any()",
    "max": "x.max()",
    "min": "x.min()",
    "sorted": "x.sort().values",
    "sum": "x.sum(0)",
}
"""Of Python's functions that go through what they are given. What `list` gives may be used later."""
_READS = frozenset(("item", "_local_scalar_dense"))
_LOOKS_UP = frozenset(("embedding",))
_CUTS = frozenset(("slice", "narrow"))
_PICKED_TO_SHOW = frozenset(("masked_select",))
_VECTORISED = (
    "Vectorise the loop: arithmetic and comparisons work on all elements at once. `sum`, `cumsum` and `amax` "
    "replace accumulation, `torch.where` replaces `if`, broadcasting replaces nested loops."
)
_AS_NUMBERS = (
    "The loop goes over whole numbers in a tensor and reads each of them. If Python needs them, iterate over "
    "`ix.tolist()`, one call for all. If they are indices, take everything at once: `x[ix]`, and for stretches of one "
    "length `x[ix[:, None] + torch.arange(length)]`."
)
_READ_AT_ONCE = (
    "The loop only reads numbers, each by a call. `x.tolist()` fetches all of them in one. Where few are needed, let "
    "PyTorch choose them first: `topk`, `argmax`, or a comparison and `nonzero`."
)
_CUT_AT_ONCE = (
    "The loop cuts a piece out of each row, at places that it reads from a tensor, number by number. Make the places "
    "of all pieces one tensor of indices, and take them at once: `at = start[:, None] + torch.arange(size)`, then "
    "`x[torch.arange(len(x))[:, None], at]`, or `x.gather(1, at)`. With two directions, each has its own `at`."
)
_ONE_TABLE = (
    "Each round looks up rows in a table of its own. Tables of one width can be one: "
    "`nn.Embedding(sum(sizes), width)`. Add the start of each table to its column of indices: `table(x + offsets)`. "
    "What follows then works on all columns at once, and the optimizer has one parameter in place of many."
)
_NOT_YOURS = (
    "The loop is inside the library that this line calls. Call it for fewer steps, or on all that was gathered "
    "since. Or look for a form of it that takes all elements at once."
)
_ROWS_AT_ONCE = (
    "Write the body for all rows at once. Arithmetic and reductions take a dimension, `torch.bmm` multiplies "
    "each row by its own matrix, `torch.gather` picks another place in each. A convolution with a kernel for "
    "each row takes `groups`, or is a sum of products with `torch.roll`."
)
_UNCERTAINTY_OF_ROWS = 0.2
"""A few operators more or less for all rows, and how much of Python's time belongs to the loop."""
_UNCERTAINTY = 0.3
"""All but one of n rounds vanish; the uncertain part is whether the rest is one pass or three, and how much of Python's
time is the loop's. Of 36, 67 and 32 % said, fixes gave back 25, 64 and 21 to 34."""


class _ElementLoop(Struct, frozen=True):
    """One run of a loop: its operators from the first to the last that repeats, and its number of rounds. The
    ``takers`` take the elements, perhaps all at once before the first round."""

    rows: Rows
    rounds: int
    accesses: int
    takers: Rows


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def tensor_element_loop(facts: Facts) -> Suspicions:
    """Find the runs of tiny operators and report them by place."""
    found = list(_element_loops(facts))
    yield from found
    yield from _row_loops(facts, np.concatenate([_no_rows(), *(suspicion.rows for suspicion in found)]))


def _no_rows() -> Rows:
    return np.zeros(0, dtype=np.int64)


def _element_loops(facts: Facts) -> Suspicions:
    steps = facts.steps.measured_count
    for loops, rows in group_by_place(facts, list(_find_loops(facts)), lambda loop: loop.rows, _NEAR_LINES):
        accesses = round(sum(loop.accesses for loop in loops) / steps)
        rounds = sum(loop.rounds for loop in loops) / steps
        if accesses < _MIN_ACCESSES or rounds < _MIN_ROUNDS or not in_most_steps(facts, rows):
            continue
        if facts.lines.known and not (facts.lines.site[rows] >= 0).any():
            continue  # without the located step nothing shows a loop: these may be requests that come in between
        if _recurs(facts, rows) or _calls_itself(facts, rows):
            continue
        if (site := _formatting_site(facts, rows)) is not None:
            yield _suspect_formatting(facts, site)
            continue
        in_library = _is_in_library(facts, np.concatenate([loop.takers for loop in loops]))
        start, end, _ = _stretches(facts, loops)
        spent_ns = int(undisturbed_in_step_ns(facts, length_ns(facts, start, end).sum()))
        walking = _walking_builtins(facts, loops)
        who = f"Python's {' and '.join(f'`{name}`' for name in walking)}" if walking else "Python"
        yield Suspicion(
            message=f"{who} {pick_form(max(1, len(walking)), 'loops', 'loop')} over {accesses:,} elements or rows of "
            f"tensors {in_a_step(facts)} and {pick_form(max(1, len(walking)), 'runs', 'run')} "
            f"{format_count(round(len(rows) / steps), 'operator')} for them, one by one: "
            f"{format_time(spent_ns)}.",
            fix=_NOT_YOURS if in_library else _of_tensors(walking) or _advice(facts, loops),
            kind=Kind.OPPORTUNITY if in_library else None,
            rows=rows,
            edit=_vectorise(facts, loops),
            count=accesses,
            spent_ns=spent_ns,
            places=_places(facts, rows, loops),
            evidence={"accesses_per_step": accesses, "operators_per_step": round(len(rows) / steps)},
        )


def _row_loops(facts: Facts, reported: Rows) -> Suspicions:
    """Loops over few rows that run often, by their lines, without those that are ``reported`` already."""
    by_lines: dict[tuple[int, ...], list[RowLoop]] = {}
    for loop in find_row_loops(facts):
        by_lines.setdefault(tuple(sorted(loop.lines)), []).append(loop)
    for loops in by_lines.values():
        per_round = sum(len(loop.rows) for loop in loops) / sum(loop.rounds for loop in loops)
        runs = _runs_of(facts, loops[0], min(len(loop.rows) for loop in loops))
        rows = np.concatenate([_no_rows(), *runs])
        rounds = round(len(rows) / per_round / facts.steps.measured_count)
        if rounds < _MIN_ROUNDS or among(rows, reported).any() or not in_most_steps(facts, rows):
            continue
        each = round(sum(loop.rounds for loop in loops) / len(loops))
        yield Suspicion(
            message=f"A Python loop makes {rounds:,} rounds {in_a_step(facts)} over rows of tensors, {each:,} in a "
            f"run, and calls {format_count(round(per_round), 'operator')} on few numbers in each. No row needs "
            "another's result.",
            fix=_ROWS_AT_ONCE,
            rows=rows,
            edit=_take_rows_at_once(facts, runs, per_round),
            worth=LOW_FROM,
            confidence=0.85,
            count=rounds,
            places=Places.of(locations_of(facts, list(loops[0].lines))),
            evidence={"rounds_per_step": rounds, "operators_per_step": round(len(rows) / facts.steps.measured_count)},
        )


def _runs_of(facts: Facts, loop: RowLoop, least: int) -> list[Rows]:
    """Each run of a loop in the measured steps: its lines' operators with no others in between."""
    rows = program_operators(facts)
    mine = np.isin(facts.lines.site[rows], loop.lines)
    ends = np.flatnonzero((np.diff(facts.step_of(rows)) != 0) | (np.diff(mine) != 0)) + 1
    return [rows[part] for part in stretches(ends, len(rows), least) if mine[part.start]]


def _take_rows_at_once(facts: Facts, runs: list[Rows], per_round: float) -> Edit:
    """Each run takes the time of one round and what Python works between its operators; so does its backward pass."""
    rows, events = np.concatenate(runs), facts.trace.events
    kept = np.array([one_round_ns(facts, run, max(1, round(len(run) / per_round))) for run in runs])
    start, end = events.start_ns[[run[0] for run in runs]], facts.tree.end_ns[[run[-1] for run in runs]]
    spans = shrink_spans(start, end, kept, _UNCERTAINTY_OF_ROWS)
    share = per_round * len(runs) / len(rows)
    return combine([spans, scale_beside_spans(facts, rows, share, _UNCERTAINTY_OF_ROWS)])


def _formatting_site(facts: Facts, rows: Rows) -> int | None:
    """The line of these operators if all of them come from making text of tensors: ``torch/_tensor_str.py`` picks the
    numbers that are not zero (`masked_select`) and reads each (`item`)."""
    sites = distinct(facts.lines.site[rows])
    site = call_site(facts, int(sites[0])) if len(sites) == 1 else None
    if site is None or not makes_text(site.source):
        return None
    mine = _operators_at(facts, int(sites[0]))
    picks = operators_of(facts.trace, _PICKED_TO_SHOW)[mine].any()
    return int(sites[0]) if picks and operators_of(facts.trace, _READS)[mine].any() else None


def _operators_at(facts: Facts, site: int) -> Rows:
    rows = program_operators(facts)
    mine: Rows = rows[facts.lines.site[rows] == site]
    return mine


def _suspect_formatting(facts: Facts, site: int) -> Suspicion:
    """All that the line does from its first operator to the next of another line goes: Python puts the text together
    after the last number was read."""
    every, mine = program_operators(facts), _operators_at(facts, site)
    place = np.flatnonzero(among(every, mine))
    apart = np.flatnonzero((np.diff(place) != 1) | (np.diff(facts.step_of(mine)) != 0)) + 1
    first = np.concatenate([[0], apart])
    last = np.concatenate([apart, [len(mine)]]) - 1
    start, end = facts.trace.events.start_ns[mine[first]], facts.tree.end_ns[mine[last]]
    following = every[(place[last] + 1).clip(max=len(every) - 1)]
    follows = facts.step_of(following) == facts.step_of(mine[last])
    end = np.where(follows, np.maximum(end, facts.trace.events.start_ns[following]), end)
    spent_ns = int(undisturbed_in_step_ns(facts, length_ns(facts, start, end).sum()))
    count = times_per_step(facts, mine)
    return Suspicion(
        message=f"Tensors are made into text here, number by number: {format_count(count, 'operator')} a step, "
        f"{format_time(spent_ns)}. An f-string is built whether or not anybody sees it.",
        fix="Build the text only where it is shown. Give the tensor to the logger as an argument: it formats it "
        'only if the level is on (`log.debug("y = %s", y)`). Or print every n-th step. A shape or a mean '
        "often says enough.",
        rows=mine,
        edit=shrink_spans(start, end, 0, _UNCERTAINTY),
        count=count,
        spent_ns=spent_ns,
        places=name_lines(facts, [site]),
        evidence={"operators_per_step": count, "formatting_ns_per_step": spent_ns},
    )


def _recurs(facts: Facts, rows: Rows) -> bool:
    """Whether these operators are a recurrence over rows. One over single numbers is reported: Python's own would
    do."""
    elementwise = rows[operators_of(facts.trace, ELEMENTWISE)[rows]]
    if not elementwise.size or median(facts.operators.elements[elementwise]) <= 1:
        return False
    sites = distinct(facts.lines.site[rows])
    marks = located_marks(facts)
    marks = marks[np.isin(facts.trace.events.site[marks], sites)]
    around = marks_around(facts)[marks]
    computing = call_sites(facts, sites)
    for parent in distinct(around):
        first, last = marks[around == parent][[0, -1]].tolist()
        if rounds_recur(sites_between(facts, first, last), computing):
            return True
    return False


def _calls_itself(facts: Facts, rows: Rows) -> bool:
    """Whether most of the lines' marks lie below a mark of the same line: each call of the function needs the next.
    Comprehensions and lambdas of the line itself are functions, too, whose marks lie below it once."""
    site, around = facts.trace.events.site, marks_around(facts)
    marks = located_marks(facts)
    marks = marks[np.isin(site[marks], distinct(facts.lines.site[rows]))]
    codes, place = np.unique(site[marks], return_inverse=True)
    inner = np.array([_functions_in(facts, code) for code in codes.tolist()], dtype=np.int64)
    above, nested = around[marks], np.zeros(len(marks), dtype=np.int64)
    while (above >= 0).any():
        nested += (above >= 0) & (site[above] == site[marks])
        above = np.where(above >= 0, around[above], above)
    return bool(marks.size) and float((nested > inner[place]).mean()) > 1 / 2


def _functions_in(facts: Facts, code: int) -> int:
    """How many functions without a name a line's text makes."""
    place = call_site(facts, code)
    return nameless_functions(place.source) if place is not None else 0


def _is_in_library(facts: Facts, takers: Rows) -> bool:
    """Whether a function of somebody else takes the elements: not one of Python's own, such as `sum`, and not one of
    the program's that ran so many lines that its later ones are only known at the line that calls it. A line that runs
    in each round is itself inside the loop, whatever it calls: `scores.append(x[i].item())`."""
    if facts.trace.named(UNMARKED).any() or _runs_each_round(facts, takers):
        return False
    lines = [parse_piece(place.source) for place in call_sites(facts, distinct(facts.lines.site[takers]))]
    called = {name_called(node) for line in lines if line for node in ast.walk(line) if isinstance(node, ast.Call)}
    iterates = any(isinstance(node, (ast.For, ast.comprehension)) for line in lines if line for node in ast.walk(line))
    return not iterates and not called & vars(builtins).keys() and runs_inside_a_call(facts, takers)


def _runs_each_round(facts: Facts, takers: Rows) -> bool:
    """Whether the lines that take elements run for every few of them: for as many as their text names, or a few."""
    marked = facts.trace.events.site[located_marks(facts)]
    taking = distinct(facts.lines.site[takers]).tolist()
    named = [int((marked == code).sum()) * max(_MOST_WRITTEN_OUT, _written_out(facts, code)) for code in taking]
    return sum(named) * facts.steps.measured_count >= len(takers)


def _advice(facts: Facts, loops: list[_ElementLoop]) -> str:
    """What to write instead of a loop of the program's own."""
    if _reads_numbers(facts, loops):
        return _AS_NUMBERS
    rows, rounds = np.concatenate([loop.rows for loop in loops]), sum(loop.rounds for loop in loops)
    if operators_of(facts.trace, _LOOKS_UP)[rows].sum() >= rounds / 2:
        return _ONE_TABLE
    reads = operators_of(facts.trace, _READS)[rows]
    only_reads = bool(reads.any()) and bool((reads | operators_of(facts.trace, VIEW)[rows]).all())
    if only_reads and operators_of(facts.trace, _CUTS)[rows].sum() >= rounds / 2:
        return _CUT_AT_ONCE
    return _READ_AT_ONCE if only_reads else _VECTORISED


def _walking_builtins(facts: Facts, loops: list[_ElementLoop]) -> list[str]:
    """The functions of Python that iterate over a tensor which they are given, `max(x)`, if nothing else iterates."""
    takers = np.concatenate([loop.takers for loop in loops])
    iterated = takers[operators_of(facts.trace, ITERATING)[takers]]
    if count_accesses(facts, iterated).sum() < count_accesses(facts, takers).sum():
        return []
    lines = [parse_piece(site.source) for site in call_sites(facts, distinct(facts.lines.site[iterated]))]
    found = [_builtin_over_all(line) for line in lines]
    return sorted(set(found)) if all(found) else []


def _builtin_over_all(line: ast.stmt | None) -> str:
    """``max`` of a line with `max(x)`; empty if a loop or a comprehension of the line may be what iterates."""
    nodes = list(ast.walk(line)) if line is not None else []
    if any(isinstance(node, (*LOOPS, ast.Starred)) for node in nodes):
        return ""
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    names = {name_called(call) for call in calls if len(call.args) == 1 and name_called(call) in _METHOD_OF}
    return names.pop() if len(names) == 1 else ""


def _of_tensors(walking: list[str]) -> str:
    """What to call instead of Python's functions; empty without one."""
    if not walking:
        return ""
    pairs = ", ".join(f"`{_METHOD_OF[name]}` for `{name}(x)`" for name in walking)
    return (
        "Call the tensor's method, which takes all elements at once: "
        f"{pairs}. Python's function makes a tensor of each element or row, and an operator for each step."
    )


def _reads_numbers(facts: Facts, loops: list[_ElementLoop]) -> bool:
    """Whether the loops iterate over integers in a tensor, and read a number in most rounds."""
    takers = np.concatenate([loop.takers for loop in loops])
    rows = np.concatenate([loop.rows for loop in loops])
    iterated = takers[operators_of(facts.trace, ITERATING)[takers]]
    over = iterated[has_type(facts.trace, "long int", "int")[iterated]]
    rounds = int(count_accesses(facts, over).sum())
    return bool(rounds) and int(operators_of(facts.trace, _READS)[rows].sum()) >= rounds / 2


def _places(facts: Facts, rows: Rows, loops: list[_ElementLoop]) -> Places:
    """The lines of the loop, the costliest first. Lines of functions that it calls, if they take no elements
    themselves, come last: they are the same for one element and for all. If the loop iterates over a tensor (`for row
    in x`), that line's function is the loop's, whatever other functions take of the elements."""
    takers = np.concatenate([loop.takers for loop in loops])
    places = locations_of(facts, dict.fromkeys([*sites_by_time(facts, rows), *sites_by_time(facts, takers)]))
    iterated = takers[operators_of(facts.trace, ITERATING)[takers]]
    if count_accesses(facts, iterated).sum() >= sum(loop.rounds for loop in loops) / 2:
        takers = iterated
    taking = locations_of(facts, distinct(facts.lines.site[takers]))
    loop = {(place.file, place.function) for place in taking}
    own_first = sorted(places, key=lambda place: (place.file, place.function) not in loop)
    return Places.of(own_first)


def _find_loops(facts: Facts) -> Iterator[_ElementLoop]:
    """Runs of operators within a step that take elements or work on few, and repeat often."""
    rows = program_operators(facts)
    accesses = np.where(_at_fixed_places(facts, rows), 0, count_accesses(facts, rows))
    large = operators_of(facts.trace, MATRIX)[rows] & ~_is_vector_product(facts, rows)
    views = program_elementwise(facts)[1]
    small = (accesses > 0) | views | ((facts.operators.elements[rows] <= TINY_ELEMENTS) & ~large)
    step = facts.step_of(rows)
    ends = np.flatnonzero((np.diff(step) != 0) | ~small[1:] | ~small[:-1]) + 1
    for part in stretches(ends, len(rows), _MIN_RUN):
        if small[part.start] and accesses[part].sum() >= _MIN_RUN:
            loop = _trim(facts, rows[part], accesses[part])
            if loop is not None:
                yield loop


def _at_fixed_places(facts: Facts, rows: Rows) -> Bools:
    """The operators that take an element by its number, at lines that take no more different ones than their text
    names: a function that is called often, as from a solver, and not a loop over elements."""
    values, site = facts.trace.events.concrete_code, facts.lines.site
    known = (values[rows] >= 0) & (site[rows] >= 0) & (site[rows] < len(facts.callsites))
    taking = np.flatnonzero(operators_of(facts.trace, BY_NUMBER)[rows] & known)
    fixed = np.zeros(len(rows), dtype=bool)
    if taking.size:
        first, _ = distinct_rows(site[rows[taking]], facts.trace.events.name_code[rows[taking]], values[rows[taking]])
        places = np.bincount(site[rows[taking[first]]], minlength=len(facts.callsites) + 1)
        few = [code for code in distinct(site[rows[taking]]).tolist() if places[code] <= _written_out(facts, code)]
        fixed[taking] = np.isin(site[rows[taking]], few)
    return fixed


def _written_out(facts: Facts, code: int) -> int:
    """How many numbers of elements a line's text names; of a library's line, which is not known, a few."""
    place = call_site(facts, code)
    line = parse_piece(place.source) if place is not None else None
    taken = [node.slice for node in ast.walk(line) if isinstance(node, ast.Subscript)] if line is not None else []
    named = sum(len(part.elts) if isinstance(part, ast.Tuple) else 1 for part in taken)
    return named or _MOST_WRITTEN_OUT


def _trim(facts: Facts, rows: Rows, accesses: Int64s) -> _ElementLoop | None:
    """The part of a run that repeats, without what happens to stand before and after the loop."""
    code = facts.trace.events.name_code[rows].astype(np.int64) * (len(facts.callsites) + 2) + facts.lines.site[rows]
    _, kind, count = np.unique(code, return_inverse=True, return_counts=True)
    repeats = np.flatnonzero(count[kind] >= _MIN_RUN / 2)
    if not repeats.size:
        return None
    body = slice(repeats[0], repeats[-1] + 1)
    takes = accesses[: body.stop] > 0
    takes[: body.start] &= operators_of(facts.trace, ITERATING)[rows[: body.start]]  # other elements are not the loop's
    taken = min(int(accesses[: body.stop][takes].sum()), len(repeats))
    rounds = int(median(count[count >= _MIN_RUN / 2]))
    return _ElementLoop(rows[body], rounds, taken, rows[: body.stop][takes]) if taken >= _MIN_RUN else None


def _is_vector_product(facts: Facts, rows: Rows) -> Bools:
    """Products of two vectors: `x[i] @ y[j]`, `torch.dot`. Without known shapes it may be a layer."""
    flat = by_shapes(facts, rows, lambda shapes: all(len(shape) <= 1 for shape in shapes))
    return flat & (facts.trace.events.dims_code[rows] >= 0)


def _stretches(facts: Facts, loops: list[_ElementLoop]) -> tuple[Int64s, Int64s, Int64s]:
    """Start and end of each stretch that the loops run without a pause, and the number of rounds of its loop."""
    rows = np.concatenate([loop.rows for loop in loops])
    rounds = np.concatenate([np.full(len(loop.rows), loop.rounds) for loop in loops])
    start, end = facts.trace.events.start_ns[rows], facts.tree.end_ns[rows]
    begins = np.concatenate([[0], np.cumsum([len(loop.rows) for loop in loops])[:-1]])
    pauses = np.flatnonzero(start[1:] - end[:-1] > MAX_GAP_NS) + 1
    first = distinct(np.concatenate([begins, pauses]))
    last = np.concatenate([first[1:], [len(rows)]]) - 1
    return start[first], end[last], rounds[first]


def _vectorise(facts: Facts, loops: list[_ElementLoop]) -> Edit:
    """Each loop takes the time of one round, on the host, on the device and in the backward pass."""
    start, end, rounds = _stretches(facts, loops)
    kept = 1 / median(rounds)
    rows = np.concatenate([*(loop.rows for loop in loops), _nodes_within(facts, start, end)])
    spans = shrink_spans(start, end, length_ns(facts, start, end) // rounds, _UNCERTAINTY)
    return combine([spans, scale_beside_spans(facts, rows, kept, _UNCERTAINTY)])


def _nodes_within(facts: Facts, start: Int64s, end: Int64s) -> Rows:
    """The backward nodes that run in these stretches: a later backward pass may go through what they compute, as of a
    Jacobian taken row by row."""
    nodes = np.flatnonzero(facts.tree.outermost(facts.lines.backward) & facts.measured)
    at_ns = facts.trace.events.start_ns[nodes]
    return nodes[union(start, end).covered_within(at_ns, at_ns + 1) > 0]
