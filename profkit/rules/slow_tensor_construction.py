"""A tensor is made of a list of arrays or of nested lists, one Python number after the other.

What it detects
`torch.tensor`, `torch.as_tensor`, `torch.FloatTensor` and the like on a list, in most steps and with a thousand numbers
or more. In a recording such a call is an empty tensor, a stretch in which no operator runs, and the `to` and
`lift_fresh` of a tensor of the same shape. A list of tensors looks different, and so does an array, which is copied as
a whole.

Why is this bad?
PyTorch takes a list apart down to single Python objects, even inside an array, and checks and converts each: about a
tenth of a microsecond for a number that NumPy copies in less than a nanosecond. If the items of the list are arrays,
PyTorch warns of it, once.

Example
    batch = torch.tensor([env.observe() for env in environments])

Use instead
    batch = torch.from_numpy(np.stack([env.observe() for env in environments]))

How the saving is estimated
The stretch between the two operators, divided by its numbers, is what PyTorch takes for one number here. `np.stack`
makes a view of each array, which takes as long as PyTorch's handling of one or two numbers, and copies their bytes at
the memory's bandwidth. NumPy, too, takes Python's own numbers one by one, in about a seventh of PyTorch's time. The
recording does not say what is in the list: a list of single numbers keeps that seventh, a nested list the middle of
both. Before the empty tensor PyTorch goes through the list, too, to find its shape and type. If the line does nothing
else and samples of the program's stacks surely give it more of a step, their share counts.
"""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.patterns import (
    Shapes,
    by_shapes,
    each_step,
    first_shape,
    length_ns,
    times_per_step,
)
from profkit.patterns.time.list_lines import lines_reading_lists
from profkit.patterns.time.list_reading import lists_read
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_time, rule
from profkit.savings import shrink_spans, without_share
from profkit.savings.pricing import BANDWIDTH
from profkit.trace import Int64s, Rows, among

_NUMBERS_PER_ARRAY = 1.5
"""`np.stack` took 306 to 343 ns an array, PyTorch 175 to 272 ns a number (arrays of 4 and 96 numbers of three types;
torch 2.13, NumPy 2)."""
_MOST_OF_ARRAYS = 0.3
"""For arrays of a few numbers: then PyTorch's own handling of an array is most of its time (0.09 to 0.30 measured)."""
_OF_NUMBERS = 0.15
"""For lists of Python's numbers `np.asarray` took 0.07 to 0.29 of the time of `torch.tensor` (six shapes from 4096 x 2
to 64 x 4096, into float32)."""
_UNCERTAINTY = 0.15
"""From arrays that cost nothing to numbers that cost 0.29, around what most shapes keep."""


@rule(Kind.FAULT, Need.OPERATORS, Need.SHAPES)
def slow_tensor_construction(facts: Facts) -> Suspicions:
    """Look at each line that makes tensors of lists."""
    read = lists_read(facts)
    for line in lines_reading_lists(facts):
        rows = line.rows
        start = read.start_ns[among(read.rows, rows)]
        end = facts.trace.events.start_ns[rows]
        steps = facts.steps.measured_count
        spent_ns = facts.steps.per_step_ns(length_ns(facts, start, end).sum())
        joined_ns = _joined_ns(facts, rows, end - start)
        edit = shrink_spans(start, end, joined_ns, _UNCERTAINTY)
        if line.sampled is not None:
            less = 1 - int(joined_ns.sum()) / max(int((end - start).sum()), 1)
            spent_ns = round(line.sampled.share * facts.steps.usual_ns)
            edit = without_share(facts, *(less * share for share in msgspec.structs.astuple(line.sampled)))
        elements = int(facts.operators.elements[rows].sum()) // steps
        yield Suspicion(
            message=f"{each_step(times_per_step(facts, rows), 'tensor', 'is', 'are')} made of a list, number by "
            f"number: {elements:,} numbers in {format_time(spent_ns)}.",
            fix="Let NumPy join the list and share its memory: `torch.from_numpy(np.stack(arrays))`. For lists of "
            "numbers use `torch.from_numpy(np.asarray(numbers, dtype=np.float32))`. Or keep the data in one "
            "array.",
            rows=rows,
            edit=edit,
            spent_ns=spent_ns,
            evidence={"elements_per_step": elements, "ns_per_element": round((end - start).sum() / steps / elements)},
        )


def _joined_ns(facts: Facts, rows: Rows, spent_ns: Int64s) -> Int64s:
    """What NumPy takes for the lists of the tensors that ``rows`` make, for which PyTorch took ``spent_ns``."""
    bandwidth = facts.run.rates.bandwidth / 2 if facts.run.rates and not facts.device.present else BANDWIDTH
    last = by_shapes(facts, rows, _last_size, of=float)
    numbers = _OF_NUMBERS * spent_ns
    views = np.minimum(_NUMBERS_PER_ARRAY / last.clip(min=1), _MOST_OF_ARRAYS) * spent_ns
    copying = 1e9 * facts.operators.input_bytes[rows] / bandwidth
    nested = np.minimum((views + copying + numbers) / 2, spent_ns)
    return np.where(last > 0, nested, numbers).astype(np.int64)


def _last_size(shapes: Shapes) -> int:
    """The last dimension of the first tensor, if it has several; else 0, for a list of single numbers."""
    shape = first_shape(shapes)
    return shape[-1] if len(shape) > 1 else 0
