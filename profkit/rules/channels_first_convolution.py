"""Convolutions get images with the channels first, and libraries compute with the channels last.

What it detects
On a GPU: kernels that transpose images between the layouts NCHW and NHWC around convolutions, one per cent of the step
or more. On a CPU: two-dimensional convolutions on images with the channels first that take a tenth of the step or more.
There oneDNN reorders the data inside the convolution, where no recording shows it, so only `--measure` finds what the
other layout gains. It is an opportunity: the order of sums may change the last digits.

Why is this bad?
A convolution sums over channels. With the channels last, the summands lie side by side, as vector registers and a GPU's
units for tiles need them. With the channels first they have to be gathered, or the whole image is transposed before and
after. Layers keep the layout of their input, so changing it costs one conversion of the model and one of each batch.

Example
    model = resnet50()
    y = model(images)

Use instead
    model = resnet50().to(memory_format=torch.channels_last)
    y = model(images.to(memory_format=torch.channels_last))

How the saving is estimated
On a GPU the transposing kernels vanish, except one per step, because the batch has to be converted once. PyTorch's own
kernels of batch normalisation keep two fifths of their time, as those for channels last take; nothing else changes.
`--measure` runs the recorded convolutions, poolings and batch normalisations in both layouts on the machine of the
recording, with their backward pass if there was one, and these operators keep the measured share; the conversion of the
batch is not included. A layer without an implementation for the other layout can be many times slower there: measure
before and after.
"""

from __future__ import annotations

import re

import numpy as np

from profkit.patterns import (
    Call,
    Places,
    by_call,
    by_shapes,
    each_step,
    first_shape,
    in_most_steps,
    name_lines,
    named_operators,
    order_sites,
    program_operators,
    spent_ns,
    times_per_step,
)
from profkit.patterns.named_lines import model_places
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_time, rule
from profkit.run.experiment import RUNNABLE_ON_IMAGES
from profkit.savings import combine, remove, run_in_both, share_with_backward, shrink_work
from profkit.trace import Category, Int64s, Rows

_TRANSPOSES = re.compile(r"nchwtonhwc|nhwctonchw|batched_transpose|converttensor_kernel<(\w+), \1\b", re.IGNORECASE)
"""Names of the cuDNN and MIOpen kernels that change an image's layout. ``convertTensor_kernel`` of cuDNN does if both
types are the same; from one type to another it converts the values."""
_TO_FIRST = re.compile(r"nhwctonchw", re.IGNORECASE)
_CONVOLUTION = frozenset(("conv2d",))
_CONVOLVING = frozenset(("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "convolution"))
_MOST = 0.5
"""Of the step's convolutions. In a converted network only a layer or two get the other layout."""
_IMAGE_DIMENSIONS = 4
_CHANNELS_FIRST, _CHANNELS_LAST = "0", "2"
"""Memory formats as the profiler writes them: their numbers in ``c10/core/MemoryFormat.h``."""
_MIN_TRANSPOSING = 0.01
"""Less than one per cent of the step is one layer's detail."""
_MIN_SHARE = 0.1
"""Of the step. Another layout makes convolutions up to twice as fast, so less of them gains less than a twentieth."""
_UNCERTAINTY = 0.3
_NORMALISES = re.compile(r"native::batch_norm_(collect_statistics|transform_input|backward(_reduce|_elemt)?)_kernel")
"""PyTorch's own kernels of batch normalisation for channels first; the names of the others say channels last."""
_NORMALISATION_KEPT = 0.4
"""On the same images those for channels last take 0.5 of the time for the statistics, 0.7 for the result and 0.3 for
the gradient (H100, bfloat16, 128 x 128 x 56 x 56): they read whole lines where the others take one channel a block."""
_UNMEASURED = "what channels_last gains the convolutions on this CPU must be measured (`--measure`)"
_FIX = (
    "Convert the model once, `model.to(memory_format=torch.channels_last)`, and each batch, "
    "`images.to(memory_format=torch.channels_last)`. Measure the step before and after."
)


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS)
def channels_first_convolution(facts: Facts) -> Suspicions:
    """One finding for the model, at the line that calls it."""
    yield from _transposed_on_the_device(facts) if facts.device.present else _channels_first_on_the_host(facts)


def _transposed_on_the_device(facts: Facts) -> Suspicions:
    work, owner = _measured_kernels(facts, _TRANSPOSES)
    if not in_most_steps(facts, owner):
        return
    duration, (normalising, _) = facts.trace.events.duration_ns, _measured_kernels(facts, _NORMALISES)
    kept_ns = (_NORMALISATION_KEPT * duration[normalising]).astype(np.int64)
    normalised = shrink_work(normalising, kept_ns, _UNCERTAINTY)
    count, spent = times_per_step(facts, work), facts.steps.per_step_ns(duration[work].sum())
    yield Suspicion(
        message=f"{each_step(count, 'kernel', 'transposes', 'transpose')} images between channels first and channels "
        f"last, {format_time(spent)} in all.",
        fix=_FIX,
        rows=owner,
        edit=combine([remove(work[:0], _without_the_batch(facts, work, owner), _UNCERTAINTY), normalised]),
        worth=_MIN_TRANSPOSING,
        confidence=0.85,
        count=count,
        spent_ns=spent,
        places=_where_to_convert(facts, owner, duration[work]),
        evidence={"transposing_kernels_per_step": count},
    )


def _measured_kernels(facts: Facts, named: re.Pattern[str]) -> tuple[Rows, Rows]:
    """The kernels with such names that the measured steps launch, and for each the host event that launches it."""
    launches, kernels = facts.launches, facts.trace.matching(named) & (facts.trace.events.category == Category.KERNEL)
    chosen = kernels[launches.work] & (launches.owner >= 0) & facts.measured[launches.owner]
    return launches.work[chosen], launches.owner[chosen]


def _without_the_batch(facts: Facts, work: Rows, owner: Rows) -> Rows:
    """All but each step's first kernel that puts channels last: the batch has to be converted once."""
    into_last = ~facts.trace.matching(_TO_FIRST)[work]
    order = np.argsort(facts.trace.events.start_ns[owner], kind="stable")
    order = order[into_last[order]]
    _, first = np.unique(facts.step_of(owner[order]), return_index=True)
    return np.delete(work, order[first])


def _where_to_convert(facts: Facts, owner: Rows, weights: Int64s) -> Places:
    """The call of the model if most of its convolutions are transposed for: model and batch are converted there. If
    only few are, the layout is lost on their lines."""
    convolutions = program_operators(facts, _CONVOLVING)
    forward = facts.lines.forward[owner]
    called = facts.trace.mask_of(np.where(forward >= 0, forward, owner))
    if (facts.tree.holding(called) | called)[convolutions].sum() < _MOST * len(convolutions):
        return name_lines(facts, order_sites(facts.lines.forward_site[owner], weights)[:1])
    return model_places(facts, owner, weights)


def _channels_first_on_the_host(facts: Facts) -> Suspicions:
    rows = _convolutions(facts)
    if not in_most_steps(facts, rows) or share_with_backward(facts, rows) < _MIN_SHARE:
        return
    others = program_operators(facts, RUNNABLE_ON_IMAGES - _CONVOLUTION)
    others = others[by_shapes(facts, others, lambda shapes: len(first_shape(shapes)) == _IMAGE_DIMENSIONS)]
    trial = run_in_both(facts, np.sort(np.concatenate([rows, others])), "channels-last", _UNCERTAINTY)
    if trial is None:
        raise CannotLook("the recorded convolutions cannot be run again, and no recording shows what a layout costs")
    count = times_per_step(facts, rows)
    yield Suspicion(
        message=f"{each_step(count, 'convolution', 'works', 'work')} on images with the channels first.",
        fix=_FIX,
        rows=rows,
        confidence=0.8,
        count=count,
        places=model_places(facts, rows, spent_ns(facts, rows)),
        evidence={"convolutions_per_step": count},
        trial=trial,
        unpriced=_UNMEASURED,
    )


def _convolutions(facts: Facts) -> Rows:
    """The program's two-dimensional convolutions, if oneDNN writes all their results with the channels first.

    For the other layout it sizes the result by ``resize_`` with that memory format.
    """
    called = program_operators(facts, _CONVOLUTION)
    sizing = np.flatnonzero(named_operators(facts, "aten::resize_"))
    layout = by_call(facts, sizing, _layout_of, str)
    first, last = (
        facts.tree.holding(facts.trace.mask_of(sizing[layout == wanted]))[called]
        for wanted in (_CHANNELS_FIRST, _CHANNELS_LAST)
    )
    return called[first & ~last.any()]


def _layout_of(call: Call) -> str:
    """The third argument of ``resize_``, the memory format, if the second, the size, is an image's."""
    _, size, layout, *_ = [*call.arguments, "", "", ""]
    return layout if size.count(",") == _IMAGE_DIMENSIONS - 1 else ""
