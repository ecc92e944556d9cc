"""DistributedDataParallel looks for parameters without a gradient in each step, and there are none.

What it detects
`find_unused_parameters=True`: after each forward pass DistributedDataParallel searches the autograd graph for
parameters that the loss does not depend on, and an extra all-reduce tells the ranks which of them were used somewhere.
The length of that message is the number of the model's parameters. If each recorded backward pass stores as many
gradients, none was unused. With `static_graph=True` the search comes once, and nothing is reported.

Why is this bad?
The search walks the whole graph on the host while nothing is launched. The extra all-reduce is another message that all
ranks wait for, and it takes its latency however small it is. PyTorch warns of it once, in the first step.

Example
    model = DistributedDataParallel(model, find_unused_parameters=True)

Use instead
    model = DistributedDataParallel(model)

How the saving is estimated
The search vanishes, and so does the extra all-reduce: its call, its work on the device and, on a CPU, the wait for it
after the gradients are copied back.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.operators.operators import parse_dims
from profkit.patterns import in_most_steps, works_under
from profkit.patterns.averaging.gradients import ALL_REDUCES, FORWARD, storing_gradients, within
from profkit.patterns.named_lines import parallel_pass_line
from profkit.patterns.program import COPIES_BACK
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_count, rule
from profkit.savings import Edit, combine, remove, shrink_spans
from profkit.trace import Int64s, Rows

_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
_ASKS = "c10d::allreduce_"
_UNCERTAINTY = 0.3
"""The wait for the extra message may otherwise be a wait for the last bucket's."""


class _Passes(Struct, frozen=True):
    """From each search to the next forward pass: begin and end, how many gradients are stored, and the all-reduce that
    tells which parameters were used; -1 if none is seen."""

    searches: Rows
    begin_ns: Int64s
    end_ns: Int64s
    stored: Int64s
    maps: Rows

    def of(self, times_ns: Int64s) -> Int64s:
        """The pass that each of these times lies in; -1 outside all."""
        return within(self.begin_ns, self.end_ns, times_ns)


@rule(Kind.FAULT, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def unused_parameter_search(facts: Facts) -> Suspicions:
    """Compare the number of gradients with that of parameters in each backward pass after a search."""
    searches = _in_order(facts, np.flatnonzero(facts.trace.named(_SEARCH)))
    if not searches.size or not in_most_steps(facts, searches):
        return
    passes = _find_passes(facts, searches)
    sizes = np.array([_elements(facts, row) for row in passes.maps], dtype=np.int64)
    known = (sizes > 0) & (passes.stored > 0)
    if not known.any():
        raise CannotLook("the recording does not show how many parameters DistributedDataParallel has")
    if (sizes[known] != passes.stored[known]).any():
        return
    yield Suspicion(
        message="DistributedDataParallel searches the graph for unused parameters in each step. In all "
        f"{format_count(int(known.sum()), 'recorded pass', 'recorded passes')} each of its "
        f"{int(sizes[known][0])} parameters was used.",
        fix="Leave out `find_unused_parameters=True`. If other steps leave parts of the model out, keep it. If it "
        "is always the same part, `static_graph=True` searches only once.",
        rows=searches[facts.measured[searches]],
        edit=_without(facts, passes),
        confidence=0.8,  # a part of the model may be left out in steps that were not recorded
        places=parallel_pass_line(facts, searches),  # the search follows the forward pass
        evidence={"parameters": int(sizes[known][0]), "passes": int(known.sum())},
    )


def _in_order(facts: Facts, rows: Rows) -> Rows:
    return rows[np.argsort(facts.trace.events.start_ns[rows], kind="stable")]


def _find_passes(facts: Facts, searches: Rows) -> _Passes:
    """The extra all-reduce comes after that of the last bucket (``reducer.cpp``, ``all_reduce_local_used_map``), so a
    pass has at least two."""
    begin_ns = facts.trace.events.start_ns[searches]
    forwards = np.sort(facts.trace.events.start_ns[facts.trace.named(FORWARD)])
    end_ns = np.append(forwards, np.iinfo(np.int64).max)[np.searchsorted(forwards, begin_ns, side="right")]
    storing = storing_gradients(facts)
    asking = _in_order(facts, np.flatnonzero(facts.trace.named(_ASKS) & facts.tree.under(storing)))
    counts = []
    for rows in (np.flatnonzero(storing), asking):
        of_pass = within(begin_ns, end_ns, facts.trace.events.start_ns[rows])
        counts.append(np.bincount(of_pass[of_pass >= 0], minlength=len(begin_ns)))
    last = np.full(len(begin_ns), -1, dtype=np.int64)
    last[of_pass[of_pass >= 0]] = asking[of_pass >= 0]
    return _Passes(searches, begin_ns, end_ns, counts[0], np.where(counts[1] > 1, last, -1))


def _elements(facts: Facts, row: int) -> int:
    """How many elements an all-reduce of one list of numbers adds up; 0 if that is not known."""
    if row < 0:
        return 0
    shapes = parse_dims(facts.trace.text_of(facts.trace.events.dims_code[row]))
    return shapes[0][0] if shapes and len(shapes[0]) == 1 else 0


def _without(facts: Facts, passes: _Passes) -> Edit:
    """Without the search and the extra all-reduce. On a CPU nothing is left to wait for once the gradients are copied
    back."""
    rows = np.concatenate([passes.searches, passes.maps[passes.maps >= 0]])
    edit = remove(rows, works_under(facts, facts.trace.mask_of(rows)), _UNCERTAINTY)
    return edit if facts.device.present else combine([edit, _waits(facts, passes)])


def _waits(facts: Facts, passes: _Passes) -> Edit:
    """From the last gradient that is copied back until the last all-reduce of the pass is over, if that is later."""
    last = np.zeros((2, len(passes.searches)), dtype=np.int64)
    for line, names in zip(last, ((COPIES_BACK,), ALL_REDUCES), strict=True):
        rows = np.flatnonzero(facts.trace.named(*names))
        of_pass = passes.of(facts.trace.events.start_ns[rows])
        np.maximum.at(line, of_pass[of_pass >= 0], facts.trace.events.ends_of(rows)[of_pass >= 0])
    waiting = (passes.maps >= 0) & (last[0] > 0) & (last[1] > last[0])
    return shrink_spans(last[0][waiting], last[1][waiting], 0, _UNCERTAINTY)
