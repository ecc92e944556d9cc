"""The process goes on after its last step, and holds what it holds.

What it detects
After the last training step a line of the main thread waits for two seconds and 3 % of the run without using the CPU:
a `time.sleep`, a thread that is joined, input that nobody gives, a transfer. If the program uses a GPU, also work after
the last step that takes five seconds and a tenth of the run. Evaluations and checkpoints after the last step are what
the training was for and are not counted. A program that only calls a model is not judged: it may be a server.

Why is this bad?
The GPU stays taken until the process ends, and nobody else can use it. In a study of 400 jobs with little use of their
GPUs, one slept for ten minutes after training, to wait for an upload that had ended long before (Gao et al., An
Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE 2024).

Example
    train(model)
    upload("model.pt")
    time.sleep(600)  # until the upload is through

Use instead
    train(model)
    upload("model.pt")  # returns when it is through

How the saving is estimated
The time of that line after the last step, as a share of the run. Of work, only the device would be free earlier.
"""

from __future__ import annotations

from profkit.patterns import Places
from profkit.patterns.whole_run.phases import whole_run
from profkit.patterns.whole_run.run_parts import RunPart, outside_steps
from profkit.rules.base import (
    HIGH_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    When,
    format_share,
    format_time,
    rule,
)

_WAITS = 0.1
"""The most CPU time in a wait, as a share: a thread that polls uses some."""
_LEAST_WAIT_NS, _LEAST_WORK_NS = 2_000_000_000, 5_000_000_000
"""Closing files and joining workers takes less; drawing a curve takes less than the second."""
_UNCERTAINTY = 0.1
"""The wait may have had a purpose for a part of its time."""


@rule(Kind.FAULT, Need.WHOLE_RUN)
def late_release(facts: Facts) -> Suspicions:
    """Each line or function after the last step is a finding."""
    outside, whole = outside_steps(facts), whole_run(facts)
    if outside is None or whole is None:
        raise CannotLook("no step was seen, so nothing is known to come after the last one")
    uses_device = facts.account.choice.was_initialised or (facts.has_trace and facts.device.present)
    for part in outside.tail if outside.trains and whole.is_over else ():
        share = part.time_ns / whole.programs_ns
        waits = 0 <= part.cpu_ns < _WAITS * part.time_ns
        if waits and part.time_ns >= _LEAST_WAIT_NS and share >= MEDIUM_FROM:
            yield _suspect(part, share, waits=True)
        elif not waits and uses_device and part.time_ns >= _LEAST_WORK_NS and share >= HIGH_FROM:
            yield _suspect(part, share, waits=False)


def _suspect(part: RunPart, share: float, *, waits: bool) -> Suspicion:
    does = "waits here" if waits else "works here, without the device"
    fix = (
        "End the process as soon as its work is done. If it waits for a transfer, wait for the transfer itself."
        if waits
        else "Do this from what the training saved, in another job or process that holds no device."
    )
    return Suspicion(
        message=f"For {format_time(part.time_ns)} after its last step, {format_share(share)} of the run, the program "
        f"{does}. It keeps what it holds.",
        fix=fix,
        kind=None if waits else Kind.OPPORTUNITY,
        severity=None if waits else Severity.MEDIUM,
        places=Places.of([Location.of(part.site)]),
        run_ns=part.time_ns,
        run_uncertainty=_UNCERTAINTY,
        run_when=When.AFTER,
        count=1,
        confidence=0.9 if waits else 0.7,
        evidence={"tail_ns_in_run": part.time_ns, "cpu_ns": part.cpu_ns, "what": part.label},
    )
