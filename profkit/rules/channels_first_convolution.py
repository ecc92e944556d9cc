"""Convolutions get images with the channels first, and libraries compute with the channels last.

What it detects
On a GPU: kernels that transpose images between the layouts NCHW and NHWC around convolutions, one per cent of the step
or more. On a CPU: two-dimensional convolutions on images with the channels first that take a tenth of the step or more.
There oneDNN reorders the data inside the convolution, where no recording shows it, so only `--measure` tells what the
other layout gains. It is an opportunity: the order of sums may change the last digits.

Why is this bad?
A convolution sums over channels. With the channels last, what it sums lies side by side, which vector registers and the
units of a GPU for tiles need; with the channels first it has to be gathered, or the whole image is transposed before
and after. Layers keep the layout of their input, so that it costs one conversion of the model and one of each batch.

Example
    model = resnet50()
    y = model(images)

Use instead
    model = resnet50().to(memory_format=torch.channels_last)
    y = model(images.to(memory_format=torch.channels_last))

How the saving is estimated
On a GPU the transposing kernels vanish, all but one of each step, as the batch has to be converted once. PyTorch's own
kernels of batch normalisation keep two fifths of their time, as those for channels last take; nothing else changes.
With `--measure` the recorded convolutions, poolings and batch normalisations run in both layouts on the machine of the
recording, with their backward pass where there was one, and they and their backward nodes keep the share that was
measured; the conversion of the batch is not in that. A layer without an implementation for the other layout can be many
times slower there: measure before and after.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_types
from profkit.evidence.attribution import order_sites
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import named_operators, program_operators, spent_ns
from profkit.evidence.shapes import by_shapes, first_shape
from profkit.experiment import RUNNABLE_ON_IMAGES
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places, model_places, name_lines
from profkit.ruling.pricing import run_in_both, share_with_backward
from profkit.savings.edits import Edit, combine, remove, shrink_work
from profkit.savings.replay import replay
from profkit.trace.events import Category, Int64s, Rows
from profkit.trace.values import distinct
from profkit.units import format_count, format_time, pick_form

_TRANSPOSES = re.compile(r"nchwtonhwc|nhwctonchw|batched_transpose", re.IGNORECASE)
"""How cuDNN and MIOpen name the kernels that change an image's layout."""
_TO_FIRST = re.compile(r"nhwctonchw", re.IGNORECASE)
_CONVOLUTION = frozenset(("conv2d",))
_CONVOLVING = frozenset(("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "convolution"))
_MOST = 0.5
"""Of the step's convolutions: in a network that was converted only a layer or two get the other layout."""
_OTHERS = RUNNABLE_ON_IMAGES - _CONVOLUTION
_IMAGE_DIMENSIONS = 4
_CHANNELS_FIRST, _CHANNELS_LAST = "0", "2"
"""Memory formats as the profiler writes them: their numbers in ``c10/core/MemoryFormat.h``."""
_MIN_TRANSPOSING = 0.01
"""Less than one per cent of the step is one layer's detail."""
_MIN_SHARE = 0.1
"""Of the step. Another layout makes convolutions up to twice as fast where it does, so that less of them gains less
than a twentieth."""
_UNCERTAINTY = 0.3
_NORMALISES = re.compile(r"native::batch_norm_(collect_statistics|transform_input|backward(_reduce|_elemt)?)_kernel")
"""PyTorch's own kernels of batch normalisation for channels first; those for channels last have that in their names."""
_NORMALISATION_KEPT = 0.4
"""On the same images those for channels last take 0.5 of the time for the statistics, 0.7 for the result and 0.3 for
the gradient (H100, bfloat16, 128 x 128 x 56 x 56): they read whole lines where the others take one channel a block."""
_UNMEASURED = "what channels_last gains the convolutions on this CPU must be measured (`--measure`)"
_FIX = (
    "Convert the model once, `model.to(memory_format=torch.channels_last)`, and each batch, "
    "`images.to(memory_format=torch.channels_last)`; measure the step before and after."
)


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS)
def channels_first_convolution(facts: Facts) -> Iterator[Suspicion]:
    """One finding for the model, at the line that calls it."""
    if facts.device.present:
        yield from _transposed_on_the_device(facts)
    else:
        yield from _channels_first_on_the_host(facts)


def _transposed_on_the_device(facts: Facts) -> Iterator[Suspicion]:
    launches, events = facts.launches, facts.trace.events
    named = facts.trace.matching(_TRANSPOSES)
    chosen = named[launches.work] & (events.category[launches.work] == Category.KERNEL)
    chosen &= (launches.owner >= 0) & facts.measured[launches.owner]
    work, owner = launches.work[chosen], launches.owner[chosen]
    edit = combine([remove(work[:0], _without_the_batch(facts, work, owner), _UNCERTAINTY), _normalised_last(facts)])
    if not in_most_steps(facts, owner) or replay(facts, edit).fraction < _MIN_TRANSPOSING:
        return
    count = times_per_step(facts, work)
    spent = facts.steps.per_step_ns(events.duration_ns[work].sum())
    yield Suspicion(
        message=f"{format_count(count, 'kernel')} a step {pick_form(count, 'transposes', 'transpose')} images between "
        f"channels first and channels last, {format_time(spent)} in all.",
        fix=_FIX,
        rows=owner,
        edit=edit,
        confidence=0.85,
        count=count,
        spent_ns=spent,
        places=_where_to_convert(facts, owner, events.duration_ns[work]),
        evidence={"transposing_kernels_per_step": count},
    )


def _without_the_batch(facts: Facts, work: Rows, owner: Rows) -> Rows:
    """All but each step's first kernel that puts channels last: the batch has to be converted once."""
    into_last = ~facts.trace.matching(_TO_FIRST)[work]
    order = np.argsort(facts.trace.events.start_ns[owner], kind="stable")
    order = order[into_last[order]]
    _, first = np.unique(facts.step_of(owner[order]), return_index=True)
    rest: Rows = np.delete(work, order[first])
    return rest


def _where_to_convert(facts: Facts, owner: Rows, weights: Int64s) -> Places:
    """Where the program calls the model, if most of its convolutions are transposed for: model and batch are converted
    there, once. Where only few are, the layout is lost on their lines."""
    convolutions = program_operators(facts, _CONVOLVING)
    forward = facts.lines.forward[owner]
    called = facts.trace.mask_of(np.where(forward >= 0, forward, owner))
    if (facts.tree.holding(called) | called)[convolutions].sum() < _MOST * len(convolutions):
        return name_lines(facts, order_sites(facts.lines.forward_site[owner], weights)[:1])
    return model_places(facts, owner, weights)


def _normalised_last(facts: Facts) -> Edit:
    """PyTorch's own batch normalisation of what the convolutions then hand over with the channels last."""
    launches, events = facts.launches, facts.trace.events
    named = facts.trace.matching(_NORMALISES)
    owner = launches.owner
    chosen = named[launches.work] & (events.category[launches.work] == Category.KERNEL) & (owner >= 0)
    work = launches.work[chosen & facts.measured[owner]]
    return shrink_work(work, (_NORMALISATION_KEPT * events.duration_ns[work]).astype(np.int64), _UNCERTAINTY)


def _channels_first_on_the_host(facts: Facts) -> Iterator[Suspicion]:
    rows = _convolutions(facts)
    if not in_most_steps(facts, rows) or share_with_backward(facts, rows) < _MIN_SHARE:
        return
    everything = np.sort(np.concatenate([rows, _others(facts)]))
    trial = run_in_both(facts, everything, "channels-last", _UNCERTAINTY)
    if trial is None:
        raise CannotLook("the recorded convolutions cannot be run again, and no recording shows what a layout costs")
    count = times_per_step(facts, rows)
    yield Suspicion(
        message=f"{format_count(count, 'convolution')} a step {pick_form(count, 'works', 'work')} on images with the "
        "channels first.",
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
    """The program's two-dimensional convolutions, if oneDNN writes the results of all with the channels first.

    For the other layout it sizes the result by ``resize_`` with that memory format.
    """
    called = program_operators(facts, _CONVOLUTION)
    sized = named_operators(facts, "aten::resize_")
    arguments = facts.trace.events.concrete_code
    layout = {int(code): _layout_of(facts.trace.text_of(int(code))) for code in distinct(arguments[sized])}
    first, last = (
        facts.tree.holding(sized & np.isin(arguments, [key for key, value in layout.items() if value == wanted]))
        for wanted in (_CHANNELS_FIRST, _CHANNELS_LAST)
    )
    chosen: Rows = called[first[called]]
    return chosen if not last[called].any() else called[:0]


def _others(facts: Facts) -> Rows:
    """The program's other operators on images whose time depends on the layout."""
    called = program_operators(facts, _OTHERS)
    images: Rows = called[by_shapes(facts, called, lambda shapes: len(first_shape(shapes)) == _IMAGE_DIMENSIONS)]
    return images


def _layout_of(arguments: str) -> str:
    """The memory format that ``resize_`` was asked for, its third argument, if the size, its second, is an image's."""
    _, size, layout, *_ = [*parse_types(arguments), "", "", ""]
    return layout if size.count(",") == _IMAGE_DIMENSIONS - 1 else ""
