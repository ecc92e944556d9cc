"""A tensor is filled with zeros, ones or random numbers on the host and then copied to the device.

What it detects
A factory on the host (`rand`, `randn`, `randint`, `zeros`, `ones`, `full`, `arange`, or `empty` and an in-place fill)
directly followed, but for a change of shape, by the copy of as many elements of the same type to the device, in most
steps. Copying real data is no fault: it has to reach the device once.

Why is this bad?
One host thread fills the memory, the bus carries it, and because the memory is not pinned the host waits for both. The
device fills its own memory a hundred times faster, and nothing waits.

Example
    noise = torch.randn(batch, channels).to(device)

Use instead
    noise = torch.randn(batch, channels, device=device)

How the saving is estimated
The recorded steps are replayed without the host's factory, the call that copies, the copy and the wait for it. The fill
on the device that takes their place is left out: it runs at the device's memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_types
from profkit.evidence.attribution import frequent_lines
from profkit.evidence.frequency import per_step
from profkit.evidence.program import named_operators
from profkit.findings import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.pricing import launches_anything
from profkit.savings.edits import remove
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.units import format_bytes, format_count, format_time

_FACTORIES = ("aten::rand", "aten::randn", "aten::randint", "aten::randperm", "aten::normal", "aten::zeros",
              "aten::ones", "aten::full", "aten::arange", "aten::linspace", "aten::logspace", "aten::eye",
              "aten::tril_indices", "aten::triu_indices", "aten::zeros_like", "aten::ones_like", "aten::full_like",
              "aten::rand_like", "aten::randn_like", "aten::randint_like")  # fmt: skip
_FILLS = ("aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_",
          "aten::exponential_", "aten::log_normal_", "aten::cauchy_", "aten::geometric_")  # fmt: skip
_EMPTIES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")
_RESHAPES = ("aten::view", "aten::reshape", "aten::unsqueeze", "aten::squeeze", "aten::expand", "aten::permute",
             "aten::transpose", "aten::t", "aten::flatten", "aten::contiguous", "aten::detach", "aten::tril",
             "aten::triu", "aten::pin_memory", "aten::_pin_memory")  # fmt: skip
"""What may stand between: the same elements in another shape, or half of them cleared, as a causal mask is made."""
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


class _Created(Struct, frozen=True):
    """One tensor made on the host: the operators from the factory to the copying call, and the copying call."""

    chain: Rows
    copy: int


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def host_created_tensor(facts: Facts) -> Iterator[Suspicion]:
    """One finding for each line that copies."""
    created = {tensor.copy: tensor for tensor in _created_tensors(facts)}
    copies = np.array(sorted(created), dtype=np.int64)
    for rows in frequent_lines(facts, copies):
        chain = np.concatenate([created[int(row)].chain for row in rows])
        yield _suspect(facts, rows, chain)


def _suspect(facts: Facts, rows: Rows, chain: Rows) -> Suspicion:
    events, launches = facts.trace.events, facts.launches
    inside = facts.tree.under(facts.trace.mask_of(rows))
    work = launches.work[(launches.call >= 0) & inside[launches.call]]
    count, steps = per_step(facts, rows), facts.steps.measured_count
    host_ns = facts.steps.per_step_ns((facts.tree.end_ns[chain] - events.start_ns[chain]).sum())
    size = int(events.size_bytes[work].clip(min=0).sum()) // steps
    first = chain[np.isin(chain, np.flatnonzero(named_operators(facts, *_FACTORIES, *_FILLS)))]
    name = facts.trace.name_of(int(first[0])).removeprefix("aten::")
    moved = f", {format_bytes(size)} over the bus" if size else ""
    return Suspicion(
        message=f"{format_count(max(1, round(count)), 'tensor')} a step filled on the host by {name} and then copied "
        f"to the device: {format_time(host_ns)} of the host's time{moved}.",
        fix=f"Make it where it is used: {_spell(name)}; once, outside the loop, where it never changes.",
        rows=rows,
        edit=remove(chain, work),
        spent_ns=host_ns,
        evidence={"host_ns_per_step": host_ns, "bytes_per_step": size},
    )


def _spell(name: str) -> str:
    """The call that makes the tensor on the device: a fill has no device of its own, its ``empty`` has."""
    made = f"empty(..., device=device).{name}(...)" if name.endswith("_") else f"{name}(..., device=device)"
    return f"`torch.{made}`"


def _created_tensors(facts: Facts) -> Iterator[_Created]:
    """Every tensor of the measured steps that the host filled and then sent to the device."""
    events = facts.trace.events
    operators = (events.category == Category.OPERATOR) & facts.trace.where_name(lambda name: "::" in name)
    calls = np.flatnonzero(facts.tree.outermost(operators))
    copying, on_device = _sends(facts), launches_anything(facts)
    reshapes = named_operators(facts, *_RESHAPES)[calls]
    before = np.maximum.accumulate(np.where(reshapes, -1, np.arange(len(calls))))
    makes = (named_operators(facts, *_FACTORIES) & ~on_device)[calls]
    fills, empties = (named_operators(facts, *_FILLS) & ~on_device)[calls], named_operators(facts, *_EMPTIES)[calls]
    for at in np.flatnonzero(copying[calls] & facts.measured[calls]):
        begin = int(before[at - 1]) if at else -1
        source = begin
        if begin > 0 and fills[begin] and empties[begin - 1]:
            begin -= 1
        elif begin < 0 or not makes[begin]:
            continue
        same_thread = events.lane[calls[begin]] == events.lane[calls[at]]
        if same_thread and _same_elements(facts, int(calls[source]), int(calls[at])):
            yield _Created(calls[begin : at + 1], int(calls[at]))


def _sends(facts: Facts) -> Bools:
    """Operators that call for a copy from the host to the device."""
    events, launches = facts.trace.events, facts.launches
    sent = facts.trace.where_name(lambda name: "HtoD" in name)
    copies = ((events.category == Category.MEMCPY) & sent)[launches.work]
    sent = facts.trace.mask_of(launches.call[copies & (launches.call >= 0)])
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
    """Start times of what follows an event on its thread."""
    events = facts.trace.events
    end = int(np.searchsorted(events.lane, events.lane[row], side="right"))
    return events.start_ns[row + 1 : end]
