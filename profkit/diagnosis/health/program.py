"""Is what was recorded the program's work, or did the program fail first, or leave the work to other processes?"""

from __future__ import annotations

from collections.abc import Iterator

from profkit.core.units import format_time
from profkit.derive.facts import Facts
from profkit.diagnosis.health.remedies import remedy_for
from profkit.patterns.time.shares import time_parts
from profkit.run.directory import FAILED, Watch

_SIGNALS = {"SIGINT": 130, "SIGABRT": 134, "SIGKILL": 137, "SIGSEGV": 139, "SIGTERM": 143}
_LEAST_PYTHON = 0.1
"""Of the step. Where Python takes less between the operators, little is lost if nobody knows which line of it."""
_LAUNCHERS = ("torch.distributed", "torchrun", "accelerate", "deepspeed")


def notes_of_run(facts: Facts) -> tuple[str, ...]:
    """What the recorder noted, and which of its watches ended early.

    A failure of the program comes with its remedy, unless the verdict gives it."""
    notes, is_known = facts.run.notes, check_failure(facts) is not None
    known = notes if is_known else tuple(_with_remedy(note) if note.startswith(FAILED) else note for note in notes)
    return (*known, *_ended_watches(facts))


def _ended_watches(facts: Facts) -> Iterator[str]:
    """Why watches ended that left something to look at: a rule that has nothing gives the reason itself."""
    run = facts.run
    empty = {
        Watch.CALLS: run.recomputation,
        Watch.FUNCTIONS: run.repeated_calls,
        Watch.GRADIENTS: run.gradients,
        Watch.PADDING: run.padding,
    }
    without = {watch.value for watch, seen in empty.items() if seen is None}
    yield from (one.reason for one in run.unwatched if one.watch not in without and one.reason not in run.notes)


def _with_remedy(failure: str) -> str:
    remedy = remedy_for(failure.removeprefix(FAILED))
    return f"{failure}. {remedy}" if remedy else failure


def check_failure(facts: Facts) -> str | None:
    """The program failed before a step of it was recorded, so the recording says nothing about its work."""
    if facts.run.step_signal is not None:
        return None
    failures = [note.removeprefix(FAILED) for note in facts.run.notes if note.startswith(FAILED)]
    if failures:
        return f"the program failed before any step of it was recorded: {_with_remedy(failures[0])}"
    status = facts.run.exit_status
    if status and not facts.run.was_stopped:
        return f"the program ended with {describe_status(status)} before any step of it was recorded"
    return None


def check_children(facts: Facts) -> str | None:
    """The processes that the program started worked longer than the program, which has no steps of its own."""
    run = facts.run
    is_loading = any(loader.workers for loader in run.loaders)
    has_steps = run.step_signal is not None or facts.account.steps  # the latter of a run that was only watched
    if has_steps or is_loading or run.children_cpu_ns <= run.own_cpu_ns:
        return None
    times = f"used {format_time(run.children_cpu_ns)} of CPU time, the program itself {format_time(run.own_cpu_ns)}"
    known = f"only the program that starts the work was recorded: the processes that it started {times}"
    return f"{known}. {_advise(run.target)}"


def check_light(facts: Facts) -> str | None:
    """The recording is one of many ranks', only some of which are recorded whole."""
    if not facts.run.is_light:
        return None
    return "of this rank only collectives and steps were recorded: diagnose the whole launch, or record more --ranks"


def check_stacks(facts: Facts) -> str | None:
    """Much of the step is Python, and nothing shows which lines of it take how long."""
    if not facts.stacks.reason or not facts.steps.measured_count:
        return None
    parts = [when.total_ns for _, when in time_parts(facts)]
    return facts.stacks.reason if parts[-1] >= _LEAST_PYTHON * max(sum(parts), 1) else None


def check_operators(facts: Facts) -> str | None:
    """Neither the host nor a device did any of PyTorch's work."""
    if facts.run.is_light or facts.accelerator is not None or facts.device.present or facts.operators.rows.size:
        return None
    return "no operator of PyTorch ran in the recording"


def _advise(target: str | None) -> str:
    if (target or "").startswith(_LAUNCHERS):
        return (
            "Let the launcher start profkit: `torchrun ... -m profkit record train.py` (accelerate launch takes `-m` "
            "too), or profkit start both: `profkit diagnose --nproc 2 train.py`; each rank then has a folder of its own"
        )
    return (
        "Put `with profkit.profile(DIRECTORY):` into what these processes run, where each gets a folder of its own, or "
        "diagnose their script itself"
    )


def describe_status(status: int) -> str:
    """``exit status 139 (SIGSEGV)``."""
    name = next((f" ({name})" for name, number in _SIGNALS.items() if number == status), "")
    return f"exit status {status}{name}"
