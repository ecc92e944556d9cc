"""The optimizer passes over all parameters and their state several times, where one pass would do.

What it detects
Adam, AdamW, SGD with momentum or Adagrad of `torch.optim` whose update consists of operators on lists of tensors
(`_foreach_…`, the default on a GPU), if the step would be 3 % shorter with a fused update. It is an opportunity: a
fused update rounds less often, so the last digits change.

Why is this bad?
Each operator on a list is one pass over memory. An update of Adam takes seven, which read and write 18 tensors of the
size of the parameters; a fused kernel reads parameter, gradient and two states and writes three: 7 tensors. There is
next to no arithmetic, so time is traffic. Large models at small batches spend a good part of the step there.

Example
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

Use instead
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

How the saving is estimated
A fused update of s states for each parameter moves 2s + 3 times the parameters' bytes, at 70 % of the memory's rate:
fused AdamW reaches 72 % on an H200 and fused SGD 79 % on an H100 (recorded). The update's passes keep that share of
their time. Fewer launches are not counted. What is not in a list stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.derive.device.kernel_families import Family
from profkit.patterns.releases import FUSED_SINCE, FUSED_STATES, has_release, note_since
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_time,
    known_roofline,
    rule,
)
from profkit.savings.roofline.below import SlowLaunches, gather, keeping
from profkit.savings.roofline.launches import Point, Roofline

_ON_LISTS = "aten::_foreach_"
_REACHED = 0.7
"""Of the memory's rate."""
_MUCH = 0.1
"""Of the update's time: an operator with less, such as the one on the counters of steps, does not pass over all
parameters."""
_MOMENTUM = "aten::_foreach_mul_"
"""SGD calls it if it keeps a state: the momentum is scaled in place."""
_MIN_FRACTION = 0.03
"""Of the step: a word in one line, but results change a little."""
_UNCERTAINTY = 0.25
"""Fused kernels reach 0.6 to 0.8 of the rate, the less the smaller the tensors are."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.OPERATORS, Need.SHAPES, Need.WHOLE_STEP)
def bandwidth_bound_optimizer(facts: Facts) -> Suspicions:
    """One finding for each class of optimizer."""
    roofline = known_roofline(facts)
    for name, points in _updates(facts, roofline):
        slow = gather(facts, roofline, points)
        if slow is not None:
            yield _suspect(facts, roofline, name, slow)


def _suspect(facts: Facts, roofline: Roofline, name: str, slow: SlowLaunches) -> Suspicion:
    once = _parameter_bytes(slow.points)
    moves = sum(point.count * point.demand.bytes for point in slow.points)
    needs = (2 * _states(name, slow.points) + 3) * once
    share = min(1.0, needs / (_REACHED * roofline.rates.bandwidth) * 1e9 / max(slow.taken_ns, 1))
    return Suspicion(
        message=f"{name} updates {format_bytes(once)} of parameters in {format_count(slow.count, 'call')} on lists of "
        f"tensors, which read and write {format_bytes(moves)} in {format_time(slow.taken_ns)} a step; one fused pass "
        f"moves {format_bytes(needs)}." + slow.note,
        fix=f"Pass `fused=True`{note_since(facts, FUSED_SINCE[name])} to `torch.optim.{name}`.",
        rows=slow.rows,
        edit=keeping(facts, slow, lambda _: share, _UNCERTAINTY),
        worth=_MIN_FRACTION,
        confidence=0.85,
        count=slow.count,
        spent_ns=slow.taken_ns,
        places=slow.places,
        evidence={"calls_per_step": slow.count, "moved_bytes": round(moves), "fused_bytes": round(needs)},
    )


def _updates(facts: Facts, roofline: Roofline) -> Iterator[tuple[str, Sequence[Point]]]:
    """The passes of each class of optimizer that has a fused form, by its name."""
    passes = [
        point
        for point in roofline.points
        if point.demand.kind is Family.OPTIMIZER and point.call.name.startswith(_ON_LISTS)
    ]
    steps = facts.trace.mask_of(facts.updates.rows[facts.measured[facts.updates.rows]])
    for name in FUSED_STATES:
        if has_release(facts, FUSED_SINCE[name]) is False:
            continue
        mine = facts.tree.under(steps & facts.trace.named(f"Optimizer.step#{name}.step")) & facts.updates.inside
        if found := [point for point in passes if mine[point.rows].all()]:
            yield name, found


def _states(name: str, points: Sequence[Point]) -> int:
    if name == "SGD":
        return int(any(point.call.name == _MOMENTUM for point in points))
    return FUSED_STATES[name]


def _parameter_bytes(points: Sequence[Point]) -> float:
    """What an operator that runs once for each parameter has in its first list; of those that run more often, a
    multiple."""
    spent: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for point in points:
        spent[point.call.name] = spent.get(point.call.name, 0.0) + point.step_ns
        sizes[point.call.name] = sizes.get(point.call.name, 0.0) + point.count * point.call.size(0)
    least_ns = min(_MUCH * sum(spent.values()), max(spent.values()))
    return min(size for name, size in sizes.items() if spent[name] >= least_ns)
