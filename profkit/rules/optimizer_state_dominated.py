"""What the optimizer remembers of each parameter makes up most of a high memory peak.

What it detects
A memory snapshot with a peak of at least 256 MiB, at least half of which was allocated in an optimizer's step and
outlives it. Memory older than the snapshot's history counts if the optimizer frees it.

Why is this bad?
It is no fault: Adam keeps two numbers for each parameter, in the parameter's precision. But they are there from the
first step to the last, whatever the batch. If they are most of the memory, a smaller batch or checkpointing cannot
help.

Example
    optimizer = torch.optim.AdamW(model.parameters())

Use instead
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())

How the saving is estimated
Memory: three quarters of the state. It is assumed to be in float32, of which eight bits are a quarter.
"""

from __future__ import annotations

from profkit.derive.memory.purposes import Purpose
from profkit.patterns import Places
from profkit.patterns.allocator.lines import allocator_of, holding_lines
from profkit.patterns.allocator.purposes import DOMINATES, LARGE_BYTES, held_for
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_share, rule

_SAVED = 0.75
"""Eight bits are a quarter of a float32's 32."""


@rule(Kind.OPPORTUNITY, Need.SNAPSHOT)
def optimizer_state_dominated(facts: Facts) -> Suspicions:
    """At most one finding, for the fullest device."""
    allocator = allocator_of(facts)
    if not allocator.devices or allocator.fullest.peak_bytes < LARGE_BYTES:
        return
    use = allocator.fullest
    at_peak = allocator.live_at_peak(use)
    state_bytes = held_for(allocator, at_peak, Purpose.OPTIMIZER_STATE)
    if state_bytes < DOMINATES * use.peak_bytes:
        return
    lines = holding_lines(facts, at_peak & (allocator.purposes == Purpose.OPTIMIZER_STATE))
    parameters = held_for(allocator, at_peak, Purpose.PARAMETERS)
    times = f", {state_bytes / parameters:.1f} times the parameters" if parameters else ""
    yield Suspicion(
        message=f"{format_share(state_bytes / use.peak_bytes)} of the peak of {format_bytes(use.peak_bytes)} is the "
        f"optimizer's state: {format_bytes(state_bytes)}{times}.",
        fix="If memory limits the model, use an optimizer with 8-bit state (bitsandbytes' AdamW8bit) or with less "
        "state. Adafactor and SGD have less, and so has AdamW on fewer parameters, as with LoRA. On several "
        "GPUs shard it (FSDP, ZeroRedundancyOptimizer). On one, keep it on the host (CPU offload), which costs "
        "time.",
        places=Places.of_sites(line.site for line in lines[:1]),
        size_bytes=int(_SAVED * state_bytes),
        peak_fraction=_SAVED * state_bytes / use.peak_bytes,
        confidence=0.8,
        count=1,
        evidence={"peak_bytes": use.peak_bytes, "state_bytes": state_bytes, "parameter_bytes": parameters},
    )
