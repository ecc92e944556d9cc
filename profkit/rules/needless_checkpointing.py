"""The backward pass computes activations again that would have fitted into memory.

What it detects
Operators of the forward pass that run once more inside the backward pass, as `torch.utils.checkpoint` makes them, on a
device that has room for their results: with all of them kept, 15 % of its memory or more would still be free. With less
room, checkpointing is what makes the step possible, and nothing is reported. PyTorch's allocator tells how much is in
use or, in a run directory, the device itself; on a CPU the size of the process. A backward pass through a backward pass
(`create_graph=True`) computes derivatives, and does not repeat the forward pass.

Why is this bad?
Checkpointing trades time for memory: each checkpointed block runs its forward pass twice, about a third more arithmetic
for a model that is checkpointed throughout. It often stays on after the batch, the model or the GPU has changed and
memory is no longer short.

Example
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=False)

Use instead
    for block in self.blocks:
        x = block(x)

How the saving is estimated
The operators that run again vanish, on the host with Python's time between them, and on the device. The gradients are
computed as before. The memory that this takes is what these operators allocate, which is an upper bound: some of it is
freed at once.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.families import base_name
from profkit.patterns import Places, in_most_steps, name_lines, order_sites, spent_ns, times_per_step
from profkit.patterns.memory_use import memory_use
from profkit.patterns.places.callers import where_marked
from profkit.patterns.places.frames import commonest_function, user_frames
from profkit.rules.base import (
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    pick_form,
    rule,
)
from profkit.savings import Edit, combine, scale_operators, shrink_spans
from profkit.savings.replay import replay
from profkit.source.syntax import calls
from profkit.trace import Bools, Category, Int64s, Rows, among, distinct

_MIN_OPERATORS = 4
"""That one node of the backward pass runs again: a block of a network has as many, most gradients' formulas fewer."""
_GRAM = 3
_SAME = 0.8
"""Of the groups of three operators in a row. At the seams, casts that autocast keeps and random states differ."""
_MIN_SHARE = 0.01
"""Of the step: less is not worth memory."""
_UNCERTAINTY = 0.15
"""The forward pass stores the same either way, but what it keeps leaves the caches."""
_LIBRARY = "torch/utils/checkpoint.py"
_CALLS = ("checkpoint", "checkpoint_sequential")
"""The functions of ``torch.utils.checkpoint`` that ask for it."""


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def needless_checkpointing(facts: Facts) -> Suspicions:
    """One finding for everything that is computed again: it fits into memory together or not at all."""
    rows, node = _computed_again(facts)
    if not rows.size or not in_most_steps(facts, rows):
        return
    edit = _keep(facts, rows, node)
    if replay(facts, edit).fraction < _MIN_SHARE:
        return
    memory = memory_use(facts)
    kept_bytes = int(facts.allocated_bytes[rows].sum() / facts.steps.measured_count)
    if not (memory.is_known and kept_bytes):
        raise CannotLook("parts of the forward pass run again, but how much memory is free was not recorded")
    if not memory.has_room_for(kept_bytes):
        return
    count = times_per_step(facts, distinct(node))
    yield Suspicion(
        message=f"{format_count(count, 'part')} of the forward pass {pick_form(count, 'runs', 'run')} again in the "
        f"backward pass, to save at most {format_bytes(kept_bytes)}. But no more than "
        f"{format_bytes(memory.used_bytes)} of {format_bytes(memory.total_bytes)} is in use.",
        fix="Call the blocks without `torch.utils.checkpoint` (in transformers: leave out "
        "`gradient_checkpointing_enable()`). Keep it for a few of them if memory gets short.",
        rows=rows,
        edit=edit,
        confidence=0.8,
        count=count,
        places=_places(facts, distinct(node)),
        evidence={"kept_bytes": kept_bytes, "used_bytes": memory.used_bytes, "memory_bytes": memory.total_bytes},
    )


def _computed_again(facts: Facts) -> tuple[Rows, Rows]:
    """Operators in the backward pass that repeat operators of the forward pass in the same order, and for each the
    outermost backward node around it. A backward pass records no gradients, except for what it computes again."""
    events, tree, backward = facts.trace.events, facts.tree, facts.lines.backward
    called = _called(facts) & facts.measured
    again = np.flatnonzero(called & backward & (events.sequence >= 0))
    node = tree.nearest_ancestor(tree.outermost(backward), of=again)
    order = np.lexsort((events.start_ns[again], node))
    again, node = again[order], node[order]
    forward = np.flatnonzero(called & ~backward)
    forward = forward[np.argsort(events.start_ns[forward], kind="stable")]
    if len(again) < _MIN_OPERATORS or len(forward) < _GRAM:
        return again[:0], node[:0]
    step = facts.step_of(forward)
    known = among(_grams(facts, again), _grams(facts, forward)[_is_within(step)])
    inside = _is_within(node)
    nodes, of_row = np.unique(node, return_inverse=True)
    of_gram = of_row[: len(inside)][inside]
    grams, same = np.bincount(of_gram, minlength=len(nodes)), np.bincount(of_gram, known[inside], len(nodes))
    repeats = (np.bincount(of_row) >= _MIN_OPERATORS) & (same >= _SAME * grams)
    return again[repeats[of_row]], node[repeats[of_row]]


def _called(facts: Facts) -> Bools:
    """PyTorch's own operators that none of them calls."""
    own = facts.trace.where_name(lambda name: base_name(name) != "")
    own &= facts.trace.events.category == Category.OPERATOR
    around = facts.calling
    return own & ((around < 0) | ~own[around])


def _grams(facts: Facts, rows: Rows) -> Int64s:
    """A number for each three operators in a row, made of their names."""
    code, count = facts.trace.events.name_code[rows].astype(np.int64), len(facts.trace.names)
    return (code[:-2] * count + code[1:-1]) * count + code[2:]


def _is_within(group: Rows) -> Bools:
    """Whether three in a row are of one group."""
    within: Bools = group[: -_GRAM + 1] == group[_GRAM - 1 :]
    return within


def _keep(facts: Facts, rows: Rows, node: Rows) -> Edit:
    """Nothing runs again: from the first of a node's operators to the last, with Python's time between them."""
    first = np.flatnonzero(np.diff(node, prepend=-1))
    last = np.append(first[1:], len(rows)) - 1
    start, end = facts.trace.events.start_ns[rows[first]], facts.tree.end_ns[rows[last]]
    return combine(
        [
            shrink_spans(start, end, np.zeros(len(first), dtype=np.int64), _UNCERTAINTY),
            scale_operators(facts, rows, 0.0, _UNCERTAINTY, launch_kept=0.0),
        ]
    )


def _places(facts: Facts, nodes: Rows) -> Places:
    """The line that asks for checkpointing; if that is in a library, the program's own line that leads there."""
    forward = where_marked(facts, nodes)
    marks = facts.trace.events.category == Category.LINE_MARK
    asks = np.array([*(any(calls(site.source, one) for one in _CALLS) for site in facts.callsites), False])
    site = np.where(facts.trace.events.site < len(facts.callsites), facts.trace.events.site, -1)
    mark = facts.tree.nearest_ancestor(marks & asks[site], of=forward)
    own = facts.lines.forward_site[nodes]
    sites = np.where(mark >= 0, site[mark], own)
    if (sites >= 0).any():
        return name_lines(facts, order_sites(sites, spent_ns(facts, nodes)))
    around = _asking_function(facts, forward)
    return Places(Location.in_function(around)) if around else Places()


def _asking_function(facts: Facts, forward: Rows) -> CallSite | None:
    """From Python frames, the program's function that calls `torch.utils.checkpoint`."""
    frames = facts.trace.events.category == Category.PYTHON
    library = facts.tree.nearest_ancestor(frames & facts.trace.where_name(lambda name: _LIBRARY in name), of=forward)
    return commonest_function(facts, facts.tree.nearest_ancestor(user_frames(facts), of=library[library >= 0]))
