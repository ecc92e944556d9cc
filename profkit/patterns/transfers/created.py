"""Tensors that the host fills with given or random numbers and then sends to the device."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.operators.operators import parse_types
from profkit.patterns.program import copies_named, launches_anything, named_operators
from profkit.trace.events import Bools, Category, Int64s, Rows

FACTORIES = (
    "aten::rand",
    "aten::randn",
    "aten::randint",
    "aten::randperm",
    "aten::normal",
    "aten::zeros",
    "aten::ones",
    "aten::full",
    "aten::arange",
    "aten::linspace",
    "aten::logspace",
    "aten::eye",
    "aten::tril_indices",
    "aten::triu_indices",
    "aten::zeros_like",
    "aten::ones_like",
    "aten::full_like",
    "aten::rand_like",
    "aten::randn_like",
    "aten::randint_like",
)
FILLS = (
    "aten::fill_",
    "aten::zero_",
    "aten::normal_",
    "aten::uniform_",
    "aten::random_",
    "aten::bernoulli_",
    "aten::exponential_",
    "aten::log_normal_",
    "aten::cauchy_",
    "aten::geometric_",
)
_EMPTIES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")
_RESHAPES = (
    "aten::view",
    "aten::reshape",
    "aten::unsqueeze",
    "aten::squeeze",
    "aten::expand",
    "aten::permute",
    "aten::transpose",
    "aten::t",
    "aten::flatten",
    "aten::contiguous",
    "aten::detach",
    "aten::tril",
    "aten::triu",
    "aten::pin_memory",
    "aten::_pin_memory",
)
"""What may come in between: the same elements in another shape, or half of them cleared, as for a causal mask."""
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


class CreatedTensor(Struct, frozen=True):
    """One tensor made on the host: the operators from the factory to the copying call, and the copying call."""

    chain: Rows
    copy: int


@derived_once
def created_tensors(facts: Facts) -> list[CreatedTensor]:
    """Every tensor of the measured steps that the host filled and then sent to the device."""
    found = []
    events = facts.trace.events
    operators = (events.category == Category.OPERATOR) & facts.trace.where_name(lambda name: "::" in name)
    calls = np.flatnonzero(facts.tree.outermost(operators))
    copying, on_device = _sends(facts), launches_anything(facts)
    reshapes = named_operators(facts, *_RESHAPES)[calls]
    before = np.maximum.accumulate(np.where(reshapes, -1, np.arange(len(calls))))
    makes = (named_operators(facts, *FACTORIES) & ~on_device)[calls]
    fills, empties = (named_operators(facts, *FILLS) & ~on_device)[calls], named_operators(facts, *_EMPTIES)[calls]
    for at in np.flatnonzero(copying[calls] & facts.measured[calls]):
        begin = int(before[at - 1]) if at else -1
        source = begin
        if begin > 0 and fills[begin] and empties[begin - 1]:
            begin -= 1
        elif begin < 0 or not makes[begin]:
            continue
        same_thread = events.lane[calls[begin]] == events.lane[calls[at]]
        if same_thread and _same_elements(facts, int(calls[source]), int(calls[at])):
            found.append(CreatedTensor(calls[begin : at + 1], int(calls[at])))
    return found


def _sends(facts: Facts) -> Bools:
    """Operators that call for a copy from the host to the device."""
    call = facts.launches.call
    sent = facts.trace.mask_of(call[copies_named(facts, "HtoD") & (call >= 0)])
    return named_operators(facts, *_COPIES) & facts.tree.holding(sent)


def _same_elements(facts: Facts, source: int, copy: int) -> bool:
    """Whether both name as many elements of one type, as far as the recording says."""
    events = facts.trace.events
    inside = source + np.arange(1 + int(np.searchsorted(_lane_starts(facts, source), facts.tree.end_ns[source])))
    largest = int(inside[facts.operators.elements[inside].argmax()])
    counts: Int64s = facts.operators.elements[[largest, copy]]
    if counts.min() == 0:
        return True
    types = [parse_types(facts.trace.text_of(events.types_code[row]))[:1] for row in (largest, copy)]
    return bool(counts[0] == counts[1]) and (types[0] == types[1] or not all(types))


def _lane_starts(facts: Facts, row: int) -> Int64s:
    """The start times of what follows an event on its thread."""
    events = facts.trace.events
    end = int(np.searchsorted(events.lane, events.lane[row], side="right"))
    return events.start_ns[row + 1 : end]
