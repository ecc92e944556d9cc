"""cuDNN chooses its kernels the way that does not suit the program: by trial for sizes that change, untried for others.

What it detects
With `torch.backends.cudnn.benchmark` on: convolutions that time all kernels in most of the recorded steps, because
images of a new size come. Only in these does the host wait for the device repeatedly, after each kernel that is tried.
With it off: convolutions of a tenth of the step or more whose sizes are the same in each step, so that one trial would
do for the whole run. No recording shows what a trial would choose, so only `--measure` finds these, and they are an
opportunity: another kernel may sum in another order.

Why is this bad?
cuDNN has a dozen kernels for a convolution, and which is fastest depends on all of its sizes. By default it goes by
rules, which are mostly right. With `benchmark` it runs each of them when a size comes for the first time and keeps the
fastest: that pays after a few steps if the size stays, and never if each batch brings a new one.

Example
    torch.backends.cudnn.benchmark = True
    for image in images_as_large_as_they_come:
        model(image)

Use instead
    torch.backends.cudnn.benchmark = False   # or resize the images, or pad them to a few sizes

How the saving is estimated
A convolution that tries kernels loses everything up to the last wait inside it: the time on the host, and what was
launched until then. What runs after it is the chosen kernel, and stays. `--measure` runs the recorded convolutions both
ways on the machine of the recording, with their backward pass if there was one.
"""

from __future__ import annotations

import re

import numpy as np

from profkit.derive.families import operators_of
from profkit.patterns import (
    costliest_lines,
    each_step,
    in_most_steps,
    name_lines,
    order_sites,
    program_operators,
    times_per_step,
)
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_time, pick_form, rule
from profkit.savings import Edit, combine, dtype_of, remove, run_in_both, share_with_backward, shrink_spans, unblock
from profkit.trace import Category, Rows, distinct

_FORWARD = frozenset(("conv1d", "conv2d", "conv3d"))
_INNER = frozenset(
    (
        "cudnn_convolution",
        "cudnn_convolution_transpose",
        "convolution_backward",
        "miopen_convolution",
        "cudnn_convolution_relu",
        "cudnn_convolution_add_relu",
    )
)
"""These call the library, so a wait inside one is the library's."""
_FREES = ("cudaFree", "hipFree", "cuMemUnmap", "hipMemUnmap")
_MIN_FRACTION = 0.01
"""Less than one per cent of the step is a rare size."""
_MIN_SHARE = 0.1
"""Of the step. A trial finds a kernel that is half as fast again at best; of less than this, that is a few per cent."""
_CHANNELS_LAST, _TRANSPOSES = re.compile(r"nhwc", re.IGNORECASE), re.compile(r"nchwtonhwc|nhwctonchw", re.IGNORECASE)
_UNCERTAINTY = 0.3
"""The kernel that the rules choose may be slower than the one that was found."""
_UNMEASURED = "what trying cuDNN's kernels would gain must be measured (`--measure`)"
_OFF_FIX = (
    "Set `torch.backends.cudnn.benchmark = False`, which is the default. Or let images come in few sizes: "
    "resize them, or pad each batch to one of a few sizes."
)
_ON_FIX = (
    "Set `torch.backends.cudnn.benchmark = True` when the program starts; the first step takes longer. The last "
    "digits of results may change."
)


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def cudnn_benchmark_mismatch(facts: Facts) -> Suspicions:
    """One finding for all convolutions of the step, at the line that spends most in them."""
    rows, inside = _waits_for_trials(facts)
    if in_most_steps(facts, distinct(inside)):
        yield _tried(facts, distinct(inside), rows, inside)
    elif facts.run.flags.get("cudnn_benchmark") is False and facts.run.flags.get("cudnn_deterministic") is False:
        yield from _never_tried(facts)


def _tried(facts: Facts, trying: Rows, waits: Rows, inside: Rows) -> Suspicion:
    edit = _untried(facts, trying, waits, inside)
    count, spent = times_per_step(facts, trying), edit.span_end_ns - edit.span_start_ns
    spent_ns = facts.steps.per_step_ns(spent.sum())
    return Suspicion(
        message=f"{each_step(count, 'convolution', 'tries', 'try')} all of the library's kernels and "
        f"{pick_form(count, 'waits', 'wait')} for each, {format_time(spent_ns)} in all: `benchmark` is on, and "
        "new sizes keep coming.",
        fix=_OFF_FIX,
        rows=trying,
        edit=edit,
        worth=_MIN_FRACTION,
        confidence=0.8,
        count=count,
        spent_ns=spent_ns,
        places=name_lines(facts, order_sites(facts.lines.forward_site[trying], spent)),
        evidence={"tried_per_step": count},
    )


def _waits_for_trials(facts: Facts) -> tuple[Rows, Rows]:
    """Waits inside convolutions that contain two or more, and for each the convolution. The allocator's waits before it
    frees memory do not count."""
    rows, events = facts.waits.rows, facts.trace.events
    frees = facts.trace.named(*_FREES) & (events.category == Category.RUNTIME)
    inside = facts.tree.nearest_ancestor(operators_of(facts.trace, _INNER), of=rows)
    known = (inside >= 0) & facts.measured[inside] & ~facts.tree.holding(frees)[inside]
    known &= np.bincount(inside[known], minlength=len(events))[inside] > 1
    return rows[known], inside[known]


def _untried(facts: Facts, trying: Rows, waits: Rows, inside: Rows) -> Edit:
    """Each convolution begins after the last wait for a kernel that it tries."""
    events, launches = facts.trace.events, facts.launches
    until_ns = np.zeros(len(events), dtype=np.int64)
    np.maximum.at(until_ns, inside, facts.tree.end_ns[waits])
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(trying), of=launches.owner)
    tried = (launches.owner >= 0) & (owner >= 0)
    tried &= events.start_ns[launches.owner.clip(min=0)] < until_ns[owner.clip(min=0)]
    spans = shrink_spans(events.start_ns[trying], until_ns[trying], 0, _UNCERTAINTY)
    return combine([spans, remove(trying[:0], launches.work[tried], _UNCERTAINTY), unblock(waits, _UNCERTAINTY)])


def _never_tried(facts: Facts) -> Suspicions:
    rows = program_operators(facts, _FORWARD)
    is_steady = in_most_steps(facts, rows) and (len(facts.steps) == 1 or _same_in_each_step(facts, rows))
    if not is_steady or share_with_backward(facts, rows) < _MIN_SHARE:
        return
    if len(facts.steps) == 1:
        raise CannotLook("one step was recorded: whether its images have the same sizes in every step is not known")
    if _has_channels_last(facts):
        raise CannotLook("the images have their channels last, and no experiment tries kernels for these")
    inner = np.flatnonzero(operators_of(facts.trace, _INNER) & facts.tree.under(facts.trace.mask_of(rows)))
    of_type = dtype_of(facts, int(inner[0])) if inner.size else ""
    trial = run_in_both(facts, rows, "cudnn-benchmark", _UNCERTAINTY, of_type)
    if trial is None:
        raise CannotLook("the recorded convolutions cannot be run again, and no recording shows other kernels' times")
    count = times_per_step(facts, rows)
    yield Suspicion(
        message=f"{each_step(count, 'convolution', 'has', 'have')} the same sizes in each step, but cuDNN picks "
        "kernels without trying them.",
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
    """Whether there are kernels for channels last, and none that transposes images for them."""
    kernels = facts.trace.events.category == Category.KERNEL
    last, transposes = (facts.trace.matching(named) & kernels for named in (_CHANNELS_LAST, _TRANSPOSES))
    return bool(last.any() and not transposes.any())
