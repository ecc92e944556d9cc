"""Python loops over lists of tensors, with the same arithmetic on a handful of numbers in each round.

What it detects
A loop or a comprehension of thirty-two rounds or more, each of which calls the same operators on a few thousand numbers
at most, if the source of its lines shows that no round needs what an earlier one computed: results are appended to a
list, or added up. Not reported: recurrences, rounds of different shapes, and loops that contain a layer or a product of
matrices, go over parameters or gradients, draw random numbers, branch, or keep state in an object. Loops over the
elements of one tensor belong to `tensor-element-loop`.

Why is this bad?
Each operator on one number costs as much as one on thousands: a microsecond or more of bookkeeping, the same again in
the backward pass, and on a GPU a launch. Stacked, all rounds are one call.

Example
    for log_prob, value, target in zip(log_probs, values, targets):
        actor.append(-log_prob * (target - value.item()))
        critic.append(F.smooth_l1_loss(value, target))

Use instead
    log_probs, values, targets = torch.stack(log_probs), torch.stack(values), torch.stack(targets)
    actor = -log_probs * (targets - values.detach())
    critic = F.smooth_l1_loss(values, targets, reduction="none")

How the saving is estimated
One n-th of the operators of n rounds stays: one operator over all the numbers costs about as much as one over a few.
The backward nodes shrink alike. Python's time between two operators vanishes, but at most 10 µs of each gap.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import DECOMPOSITION, MATRIX, VIEW, base_name, operators_of
from profkit.derive.timeline.intervals import stretches
from profkit.patterns import Places, in_most_steps, locations_of, order_sites, program_operators, spent_ns
from profkit.patterns.calls import in_a_step
from profkit.patterns.loops.accesses import TINY_ELEMENTS, count_accesses
from profkit.patterns.loops.independent_rounds import head_of, rounds_are_independent
from profkit.patterns.loops.located import body_and_called, in_located_step
from profkit.patterns.loops.repeated_lines import RepeatedLines, repeated_lines
from profkit.patterns.program import run_for_the_program
from profkit.patterns.row_loops import LONG_LIST, RANDOM
from profkit.rules.base import CallSite, Facts, Kind, Location, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit, combine, shrink_spans
from profkit.savings.pricing import one_round_ns, scale_beside_spans
from profkit.trace import Rows, distinct, distinct_rows

_MIN_OPERATORS = 64
"""Operators per step that compute: sixty-four times a few microseconds show."""
_MIN_ACCESSES = 64
"""From this many elements or rows on, `tensor-element-loop` reports the loop."""
_MAKING = """
    _local_scalar_dense _to_copy arange cat clone contiguous copy detach empty empty_like empty_strided fill full item
    lift_fresh new_empty new_full new_zeros ones ones_like result_type set stack to type_as zeros zeros_like"""
_SETTING_UP = VIEW | frozenset(_MAKING.split())
"""They make, copy or read tensors and compute nothing."""
_NOT_HERE = MATRIX | DECOMPOSITION | RANDOM
"""Layers and products have rules of their own; random numbers would differ if they were drawn all at once."""
_IN_PLACE = frozenset(("add", "detach", "requires_grad", "sub"))
"""What may end in `_`: `total += x`, and what `torch.tensor` calls. Other writes to a tensor may be necessary."""
_READS = frozenset(("item", "_local_scalar_dense"))
_FIX = (
    "Make one tensor of each list before the loop (`torch.stack`, or `torch.tensor` of Python's numbers). Then "
    "write the arithmetic once, for all: sums become `.sum()`, losses take `reduction='none'`."
)
_DETACHED = " `.detach()` replaces `.item()`."
_UNCERTAINTY = 0.2
"""What stacking costs, and how much of Python's time between the operators belongs to them."""


class _ListLoop(Struct, frozen=True):
    """A loop in the located step: its head, its own lines that call operators (the costliest first), the lines at which
    the operators stand (also in functions that it calls), the operators, and the number of rounds."""

    head: Location
    lines: list[int]
    sites: Rows
    rows: Rows
    rounds: int


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, Need.LINES)
def tensor_list_loop(facts: Facts) -> Suspicions:
    """Look at each loop of the located step, and find its operators in the measured ones."""
    steps = facts.steps.measured_count
    for loop in _find_loops(facts):
        runs = _in_measured_steps(facts, loop)
        rows = np.concatenate([*runs, loop.rows[:0]])
        computing = int((~operators_of(facts.trace, _SETTING_UP)[rows]).sum() / steps)
        if computing < _MIN_OPERATORS or not in_most_steps(facts, rows):
            continue
        places, head = locations_of(facts, loop.lines), (loop.head.file, loop.head.line)
        rounds = round(len(rows) * loop.rounds / len(loop.rows) / steps)
        yield Suspicion(
            message=f"A Python loop makes {rounds:,} rounds {in_a_step(facts)} over lists of tensors and runs "
            f"{round(len(rows) / steps):,} operators on a few numbers each. No round needs another's result.",
            fix=_FIX + _DETACHED * bool(operators_of(facts.trace, _READS)[loop.rows].any()),
            rows=rows,
            edit=_call_once(facts, runs, len(loop.rows) // loop.rounds),
            confidence=0.85,
            count=rounds,
            places=Places.of([loop.head, *(one for one in places if (one.file, one.line) != head)]),
            evidence={"rounds_per_step": rounds, "operators_per_step": round(len(rows) / steps)},
        )


def _find_loops(facts: Facts) -> Iterator[_ListLoop]:
    """Lines that ran often in one call of their function, each loop once."""
    seen = set[bytes]()
    for lines in repeated_lines(facts, LONG_LIST):
        if lines.sites.tobytes() not in seen:
            seen.add(lines.sites.tobytes())
            loop = _read_loop(facts, lines)
            if loop is not None:
                yield loop


def _read_loop(facts: Facts, repeated: RepeatedLines) -> _ListLoop | None:
    """The loop of these lines, if everything it runs is tiny, the same in each round, and independent."""
    events, marks, rows = facts.trace.events, repeated.marks(facts), repeated.operators(facts)
    own = repeated.own(facts, marks)
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(own), of=rows)
    body, called = body_and_called(facts, marks, repeated.first)
    if not body or not _is_tiny(facts, rows) or not np.isin(events.site[owner], repeated.sites).all():
        return None
    head = head_of(body)
    beginning = int((events.site[own] == facts.callsites.index(head)).sum()) + 1  # the first mark is before `first`
    rounds = beginning if len(body) > 1 else len(distinct(owner))
    even = all(_is_even(facts, rows[events.site[owner] == site], rounds) for site in repeated.sites)
    if rounds < LONG_LIST or not even or _takes_elements(facts, body):
        return None
    if not rounds_are_independent(body, called):
        return None
    lines = order_sites(events.site[owner], spent_ns(facts, rows))
    return _ListLoop(Location.of(head), lines, distinct(facts.lines.site[rows]), rows, rounds)


def _is_tiny(facts: Facts, rows: Rows) -> bool:
    """Whether these are known operators on few numbers, none of them a layer, random, or writing to a tensor."""
    names = [facts.trace.names[code] for code in distinct(facts.trace.events.name_code[rows])]
    known = all(base_name(name) and (not name.endswith("_") or base_name(name) in _IN_PLACE) for name in names)
    few = facts.operators.elements[rows] <= TINY_ELEMENTS
    others = run_for_the_program(facts) | operators_of(facts.trace, _NOT_HERE)
    return bool(known and few.all() and not others[rows].any())


def _is_even(facts: Facts, rows: Rows, rounds: int) -> bool:
    """Whether a line called the same operators with the same shapes in each round; in the first it may add to 0."""
    if len(rows) % rounds:
        return False
    _, kind = distinct_rows(facts.trace.events.name_code[rows], facts.trace.events.dims_code[rows])
    of_round = kind.reshape(rounds, -1)
    return bool((of_round[1:] == of_round[1]).all())


def _takes_elements(facts: Facts, lines: list[CallSite]) -> bool:
    """Whether these lines take enough elements or rows out of tensors for `tensor-element-loop` to report them."""
    within = {(site.file, site.line) for site in lines}
    here = np.array([(site.file, site.line) in within for site in facts.callsites] + [False])
    rows = in_located_step(facts, facts.operators.rows)
    rows = rows[here[facts.lines.site[rows]]]
    return int(count_accesses(facts, rows).sum()) >= _MIN_ACCESSES


def _in_measured_steps(facts: Facts, loop: _ListLoop) -> list[Rows]:
    """Each run of the loop in the measured steps: its lines' operators with no others in between."""
    rows = program_operators(facts)
    mine = np.isin(facts.lines.site[rows], loop.sites)
    step = facts.step_of(rows)
    ends = np.flatnonzero((np.diff(step) != 0) | (np.diff(mine) != 0)) + 1
    least = LONG_LIST * (len(loop.rows) // loop.rounds)
    return [rows[part] for part in stretches(ends, len(rows), least) if mine[part.start]]


def _call_once(facts: Facts, runs: list[Rows], per_round: int) -> Edit:
    """Each run takes the time of one round and what Python works between its operators; so does its backward pass."""
    rows = np.concatenate(runs)
    start, end = facts.trace.events.start_ns, facts.tree.end_ns
    kept = np.array([one_round_ns(facts, run, len(run) // per_round) for run in runs])
    spans = shrink_spans(start[[run[0] for run in runs]], end[[run[-1] for run in runs]], kept, _UNCERTAINTY)
    share = per_round * len(runs) / len(rows)
    return combine([spans, scale_beside_spans(facts, rows, share, _UNCERTAINTY)])
