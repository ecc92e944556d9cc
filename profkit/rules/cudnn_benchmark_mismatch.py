"""cuDNN chooses its kernels the way that does not suit the program: by trial for sizes that change, untried for others.

What it detects
With `torch.backends.cudnn.benchmark` on: convolutions that time all kernels in most of the recorded steps, because
images of a new size come. They show by what no other convolution does: inside them the host waits for the device again
and again, after each kernel that is tried. With it off: convolutions of a tenth of the step or more whose sizes are the
same in each step, so that one trial would do for the whole run. Then nothing tells what a trial would choose, so only
`--measure` finds it, and it is an opportunity: another kernel may sum in another order.

Why is this bad?
cuDNN has a dozen kernels for a convolution, and which is fastest depends on all of its sizes. By default it goes by
rules, which are right for most. With `benchmark` it runs each of them when a size comes for the first time and keeps
the fastest: that pays after a few steps if the size stays, and never if each batch brings a new one.

Example
    torch.backends.cudnn.benchmark = True
    for image in images_as_large_as_they_come:
        model(image)

Use instead
    torch.backends.cudnn.benchmark = False   # or resize the images, or pad them to a few sizes

How the saving is estimated
Of a convolution that tries kernels everything goes up to the last wait inside it: the time on the host, and what was
launched until then. What runs behind it is the kernel that was chosen, and stays. With `--measure` the recorded
convolutions run both ways on the machine of the recording, with their backward pass where there was one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import operators_of
from profkit.evidence.attribution import order_sites
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import program_operators
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import costliest_lines, name_lines
from profkit.ruling.pricing import run_in_both, share_with_backward
from profkit.savings.cases import dtype_of
from profkit.savings.edits import Edit, combine, remove, shrink_spans, unblock
from profkit.savings.replay import replay
from profkit.trace.events import Category, Rows
from profkit.trace.values import distinct
from profkit.units import format_count, format_time, pick_form

_FORWARD = frozenset(("conv1d", "conv2d", "conv3d"))
_INNER = frozenset(("cudnn_convolution", "cudnn_convolution_transpose", "convolution_backward", "miopen_convolution",
                    "cudnn_convolution_relu", "cudnn_convolution_add_relu"))  # fmt: skip
"""What calls the library, so that a wait inside one is the library's."""
_FREES = ("cudaFree", "hipFree", "cuMemUnmap", "hipMemUnmap")
_MIN_FRACTION = 0.01
"""Less than one per cent of the step is a size that comes seldom."""
_MIN_SHARE = 0.1
"""Of the step: a trial finds a kernel that is half as fast again at best, which of less is a few per cent."""
_CHANNELS_LAST, _TRANSPOSES = re.compile(r"nhwc", re.IGNORECASE), re.compile(r"nchwtonhwc|nhwctonchw", re.IGNORECASE)
_UNCERTAINTY = 0.3
"""The kernel that the rules choose may be slower than the one that was found."""
_UNMEASURED = "what trying cuDNN's kernels would gain must be measured (`--measure`)"
_OFF_FIX = (
    "Set `torch.backends.cudnn.benchmark = False`, which is the default, or let images come in few sizes: resize them, "
    "or pad each batch to the next of a few."
)
_ON_FIX = (
    "Set `torch.backends.cudnn.benchmark = True` at the program's start; the first step gets longer. Results may "
    "change in the last digits."
)


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def cudnn_benchmark_mismatch(facts: Facts) -> Iterator[Suspicion]:
    """One finding for all convolutions of the step, at the line that spends most in them."""
    tried = list(_tried_in_each_step(facts))
    yield from tried
    flags = facts.run.flags
    if not tried and flags.get("cudnn_benchmark") is False and flags.get("cudnn_deterministic") is False:
        yield from _never_tried(facts)


def _tried_in_each_step(facts: Facts) -> Iterator[Suspicion]:
    rows, inside = _waits_for_trials(facts)
    trying = distinct(inside)
    if not in_most_steps(facts, trying):
        return
    edit = _untried(facts, trying, rows, inside)
    if replay(facts, edit).fraction < _MIN_FRACTION:
        return
    count, spent = times_per_step(facts, trying), edit.span_end_ns - edit.span_start_ns
    spent_ns = facts.steps.per_step_ns(spent.sum())
    yield Suspicion(
        message=f"{format_count(count, 'convolution')} a step {pick_form(count, 'tries', 'try')} all of the library's "
        f"kernels and waits for each, {format_time(spent_ns)} in all: `benchmark` is on, and new sizes keep coming.",
        fix=_OFF_FIX,
        rows=trying,
        edit=edit,
        confidence=0.8,
        count=count,
        spent_ns=spent_ns,
        places=name_lines(facts, order_sites(facts.lines.forward_site[trying], spent)),
        evidence={"tried_per_step": count},
    )


def _waits_for_trials(facts: Facts) -> tuple[Rows, Rows]:
    """Waits inside convolutions that hold two or more, and for each the convolution. The allocator waits there too
    before it gives memory back."""
    rows, events = facts.waits.rows, facts.trace.events
    frees = facts.trace.where_name(lambda name: name in _FREES) & (events.category == Category.RUNTIME)
    inside = facts.tree.nearest_ancestor(operators_of(facts.trace, _INNER), of=rows)
    known = (inside >= 0) & facts.measured[inside] & ~facts.tree.holding(frees)[inside]
    known &= np.bincount(inside[known], minlength=len(events))[inside] > 1
    return rows[known], inside[known]


def _untried(facts: Facts, trying: Rows, waits: Rows, inside: Rows) -> Edit:
    """Each of them begins behind the last wait for a kernel that it tries."""
    events, launches = facts.trace.events, facts.launches
    until_ns = np.zeros(len(events), dtype=np.int64)
    np.maximum.at(until_ns, inside, facts.tree.end_ns[waits])
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(trying), of=launches.owner)
    tried = (launches.owner >= 0) & (owner >= 0)
    tried &= events.start_ns[launches.owner.clip(min=0)] < until_ns[owner.clip(min=0)]
    spans = shrink_spans(events.start_ns[trying], until_ns[trying], 0, _UNCERTAINTY)
    return combine([spans, remove(trying[:0], launches.work[tried], _UNCERTAINTY), unblock(waits, _UNCERTAINTY)])


def _never_tried(facts: Facts) -> Iterator[Suspicion]:
    rows = program_operators(facts, _FORWARD)
    if not in_most_steps(facts, rows) or not _same_in_each_step(facts, rows):
        return
    if share_with_backward(facts, rows) < _MIN_SHARE:
        return
    if _has_channels_last(facts):
        raise CannotLook("the images have their channels last, and no experiment tries kernels for these")
    inner = np.flatnonzero(operators_of(facts.trace, _INNER) & facts.tree.under(facts.trace.mask_of(rows)))
    of_type = dtype_of(facts, int(inner[0])) if inner.size else ""
    trial = run_in_both(facts, rows, "cudnn-benchmark", _UNCERTAINTY, of_type)
    if trial is None:
        raise CannotLook("the recorded convolutions cannot be run again, and no recording shows other kernels' times")
    count = times_per_step(facts, rows)
    yield Suspicion(
        message=f"{format_count(count, 'convolution')} a step {pick_form(count, 'has', 'have')} the same sizes in each "
        "step, and cuDNN chooses the kernels untried.",
        fix=_ON_FIX,
        rows=rows,
        kind=Kind.OPPORTUNITY,
        confidence=0.8,
        count=count,
        places=costliest_lines(facts, rows),
        evidence={"convolutions_per_step": count},
        trial=trial,
        unpriced=_UNMEASURED,
    )


def _same_in_each_step(facts: Facts, rows: Rows) -> bool:
    """Whether each step that has convolutions has all of the sizes."""
    sizes, step = facts.trace.events.dims_code[rows], facts.step_of(rows)
    every = distinct(sizes)
    return len(distinct(step)) > 1 and all(len(distinct(sizes[step == one])) == len(every) for one in distinct(step))


def _has_channels_last(facts: Facts) -> bool:
    """Kernels for channels last that no other kernel transposes images for."""
    kernels = facts.trace.events.category == Category.KERNEL
    last = facts.trace.matching(_CHANNELS_LAST) & kernels
    transposes = facts.trace.matching(_TRANSPOSES) & kernels
    return bool(last.any() and not transposes.any())
