"""The effect of each change: from another run of the operators if possible, else from the same run with other sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from profkit.memory_planner.accounting import Timeline
from profkit.memory_planner.checkpointing import checkpoint_blocks
from profkit.memory_planner.failures import first_line
from profkit.memory_planner.optimizers import optimizer_classes
from profkit.memory_planner.plan import (
    GRADIENTS,
    OPTIMIZER_STATE,
    OPTIMIZER_STEP,
    PARAMETERS,
    TEMPORARIES,
    Change,
    PlanRequest,
)
from profkit.memory_planner.training import Trained, Variant

_MICRO_BATCHES = (2, 4)
_DEVICES = 8
"""The GPUs of one machine, for changes that spread memory over several."""
_QUANTISED_FROM = 4096
_QUANTISED_BLOCK = 256
"""bitsandbytes leaves smaller tensors as they are, and adds a float32 to each block of the others."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A change whose effect needs another run."""

    name: str
    variant: Variant
    numerics: bool = False


def planned_changes(request: PlanRequest, fits: bool) -> Iterator[Planned]:
    """``fits``: the plan fits as it is, or no limit was given."""
    base = Variant(request.batch, request.precision, request.optimizer)
    if request.precision == "fp32":
        yield Planned("bf16-amp", replace(base, precision="bf16-amp"), numerics=True)
        yield Planned("bf16", replace(base, precision="bf16"), numerics=True)
    for parts in _MICRO_BATCHES:
        if request.batch >= parts:
            name = f"accumulation over {parts} micro-batches of {-(-request.batch // parts)}"
            yield Planned(name, replace(base, micro_batches=parts))
    yield Planned("checkpointing", replace(base, prepare=checkpoint_blocks))
    kind = request.optimizer.split("-")[0]
    if _has_fused_form(kind) and "fused" not in request.optimizer:
        yield Planned(f"{kind}-fused", replace(base, optimizer=f"{kind}-fused"))
    if request.optimizer != "sgd":
        yield Planned("sgd without momentum", replace(base, optimizer="sgd"), numerics=True)
    if not fits:
        precision = "bf16-amp" if request.precision == "fp32" else request.precision
        parts = min(_MICRO_BATCHES[-1], request.batch)
        every = replace(base, precision=precision, micro_batches=parts, prepare=checkpoint_blocks)
        name = f"{precision}, checkpointing and {parts} micro-batches"
        yield Planned(name, every, numerics=precision != base.precision)


def _has_fused_form(kind: str) -> bool:
    return "fused" in inspect.signature(optimizer_classes()[kind]).parameters


def computed_changes(trained: Trained) -> Iterator[Change]:
    """Changes that cannot be run here, because they need another library or several devices. If the optimizer's step
    runs in one kernel or elsewhere, its temporaries go too."""
    timeline, state = trained.timeline, trained.state_elements
    if not any(timeline.sizes[number] for number in state):
        return
    no_temporaries = {
        number: 0
        for number, category in enumerate(timeline.categories)
        if category == TEMPORARIES and timeline.born[number] == OPTIMIZER_STEP
    }
    eighth = {
        number: elements + 4 * -(-elements // _QUANTISED_BLOCK)
        for number, elements in state.items()
        if elements >= _QUANTISED_FROM
    }
    yield _computed("8-bit optimizer state", timeline, no_temporaries | eighth, numerics=True)
    yield _computed("optimizer state and step on the host", timeline, no_temporaries | dict.fromkeys(state, 0))
    for name, spread in (
        (f"optimizer state over {_DEVICES} GPUs (ZeRO-1)", (OPTIMIZER_STATE,)),
        (
            f"state, gradients and parameters over {_DEVICES} GPUs (ZeRO-3, FSDP), at least",
            (OPTIMIZER_STATE, GRADIENTS, PARAMETERS),
        ),
    ):
        parts = {
            number: -(-size // _DEVICES)
            for number, size in enumerate(timeline.sizes)
            if timeline.categories[number] in spread or number in no_temporaries
        }
        yield _computed(name, timeline, parts)


def _computed(name: str, timeline: Timeline, sizes: dict[int, int], numerics: bool = False) -> Change:
    return Change(name, timeline.resized(sizes).usage(), computed=True, numerics=numerics)


def change_of(planned: Planned, train: Callable[[Variant], Trained]) -> Change:
    """Run the change. If the model cannot be trained that way, only this change is lost."""
    try:
        return Change(planned.name, train(planned.variant).timeline.usage(), numerics=planned.numerics)
    except Exception as error:
        return Change(planned.name, None, first_line(error), numerics=planned.numerics)
