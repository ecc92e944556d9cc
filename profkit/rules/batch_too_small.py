"""A larger batch would give many more samples a second, as much of the step does not depend on the batch.

What it detects
A program that takes its batches from a DataLoader, and of which four times the batch is predicted to give at least
twice as many samples a second. Nothing is reported if the wait for the loader is more than a tenth of the step: then
the loader is what bounds it.

Why is this bad?
Launching kernels, Python and the optimizer's update cost the same for any batch, and small tensors leave most of a GPU
idle. In a study of 400 jobs with little use of their GPUs, a batch that was too small was the cause of a quarter of all
issues, and larger ones made two jobs 3 to 5 times as fast (Gao et al., An Empirical Study on Low GPU Utilization of
Deep Learning Jobs, ICSE 2024).

Example
    loader = DataLoader(dataset, batch_size=8, shuffle=True)

Use instead
    loader = DataLoader(dataset, batch_size=64, shuffle=True)

Learning rate and schedule depend on the batch and have to be set anew. A loop that only evaluates or infers has
neither, so its batch can be as large as fits.

How the saving is estimated
Of operators whose tensors have the batch as a dimension, arithmetic and bytes grow, at the best rates that the
recording shows; kernels grow once they would fill half of their roofline. The rest of the step stays. On a GPU the
price is the steps' part of the run that four times the batch would save.
"""

from __future__ import annotations

from profkit.patterns import Places
from profkit.patterns.whole_run.phases import STEPS, whole_run
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_share,
    rule,
)
from profkit.savings.cost_models.devices import why_no_rates
from profkit.savings.larger_batch import LargerBatch, larger_batch

_TIMES = 4
"""Twice the batch may be chance, eight times is often another training."""
_LEAST_GAIN = 2.0
"""Half of the step does not depend on the batch, or the device is hardly used."""
_WAITS = 0.1
"""Of the step, for a batch: from then on it is a matter of the loader."""
_SHOWN = (2, 4, 8)
_ROOM = 0.9
"""Of a device's memory: allocators need some for themselves."""
_NO_ROOM = " The device's memory may not hold twice the batch."
_UNCERTAINTY = 0.4
"""Six tables of ten small models on a CPU (``tests/benchmarks/RESULTS.md``): half of the predictions were within 8 to
11 % on a quiet machine and within 7 to 25 % on a busy one, the worst 42 and 61 % off. On a GPU nothing was measured."""


@rule(Kind.OPPORTUNITY, Need.SHAPES, Need.WHOLE_STEP)
def batch_too_small(facts: Facts) -> Suspicions:
    """One finding for the batch."""
    if not any(use.batch_size for use in facts.run.loaders):
        raise CannotLook("the size of a batch is not known: no DataLoader was used while steps were recorded")
    found = larger_batch(facts)
    if found is None:
        raise CannotLook(
            f"what a larger batch takes on this GPU is not known: {why_no_rates(facts)}"
            if facts.device.present
            else "other programs held up the recorded operators too much to tell what grows with the batch"
        )
    if _waiting(facts) >= _WAITS or found.gain(_TIMES) < _LEAST_GAIN:
        return
    on_device, trains = facts.device.present, len(facts.updates.rows) > 0
    gains = ", ".join(f"{found.gain(times):.1f} times with {found.size * times}" for times in _SHOWN)
    stays = 1 - found.growing_ns / max(found.step_ns, 1)
    fits = _fits(facts)
    room = f" The device's memory holds at least {fits} times the batch." if fits > 1 else _NO_ROOM if fits else ""
    warning = (
        " The learning rate and its schedule depend on the batch: set them anew, and compare how training converges."
        if trains
        else ""
    )
    sites = [Location.of(use.site) for use in facts.run.loaders if use.site is not None]
    yield Suspicion(
        message=f"{format_share(stays)} of the step takes the same time whatever the batch, which has {found.size} "
        f"samples. Predicted samples a second: {gains}. Beyond {found.size * found.pays_until} they hardly "
        f"increase.{room}",
        fix=f"Raise the batch size step by step, first to {found.size * _TIMES}.{warning}",
        severity=Severity.MEDIUM if on_device else Severity.LOW,
        places=Places.of(sites[:1]),
        run_ns=_saved_ns(facts, found) if on_device else 0,
        run_uncertainty=_UNCERTAINTY,
        count=1,
        confidence=0.6,
        evidence={
            "batch_size": found.size,
            "samples_per_second": round(found.size / max(found.step_ns, 1) * 1e9, 1),
            "growing_ns_per_step": found.growing_ns,
            **{f"gain_at_{times}x": round(found.gain(times), 2) for times in _SHOWN},
            "pays_until": found.pays_until,
        },
    )


def _waiting(facts: Facts) -> float:
    """The share of the recorded step in which the main thread waits for workers."""
    if not any(use.workers for use in facts.run.loaders):
        return 0.0
    rows = facts.measured_rows(facts.loading & (facts.trace.events.lane == facts.steps.main_lane))
    return float(facts.trace.events.duration_ns[rows].sum()) / facts.steps.measured_ns


def _fits(facts: Facts) -> int:
    """How many times the batch the fullest device has room for, if all memory grew with it: at least so many, as not
    all does. 0 if unknown."""
    fullest = [
        _ROOM * (device.limit_bytes or device.total_bytes) / device.allocated_peak_bytes
        for device in facts.device_memory
        if device.allocated_peak_bytes > 0
    ]
    return max(1, int(min(fullest))) if fullest else 0


def _saved_ns(facts: Facts, found: LargerBatch) -> int:
    """The part of the run's steps that four times the batch would save."""
    whole = whole_run(facts)
    steps = sum(phase.time_ns for phase in whole.phases if phase.label == STEPS) if whole is not None else 0
    return int(steps * (1 - 1 / found.gain(_TIMES)))
