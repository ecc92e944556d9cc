"""Operators run on more threads than the program has CPUs, and the threads put each other to sleep.

What it detects
More threads for an operator (`torch.set_num_threads`, `OMP_NUM_THREADS`) than CPUs in the program's affinity mask and
cgroup, or workers of a DataLoader that together run on more. As evidence that it costs, by the system's count so many
threads go to sleep that waking them takes 6 % of the step or more. The rule is silent if operators are few and large,
where it costs little, and if only other programs want the same CPUs.

Why is this bad?
The threads of an operator share its work and wait for the last of them. With a CPU for each the wait is short, and they
spin. With fewer CPUs than threads one has to sleep before the other can finish, and each operator, of which a step has
hundreds, pays for waking all of them. It happens if the number was written for another machine, and in containers,
which show the machine's CPUs while a quota limits them.

Example
    torch.set_num_threads(64)
    for x, y in loader:
        train_step(x, y)

Use instead
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for x, y in loader:
        train_step(x, y)

How the saving is estimated
With as many threads as CPUs, threads hardly sleep within an operator. The sleeps cost their number times 10 µs: a
context switch each way and the waking (5 µs by lmbench's `lat_ctx`, for processes with data), and the hundred pauses
that GNU OpenMP spins before a thread sleeps. Their share of the CPU time that the program used meanwhile is their share
of the step. It is taken evenly out of the operators that are long enough to be split among threads. What else threads
take from each other comes on top and is not priced. `--measure` runs the costliest operators on both numbers of threads
instead.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import Places, backward_of, locations_of, program_operators, remarked, sites_by_time, spent_ns
from profkit.patterns.loader_accounts import loader_accounts
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    rule,
)
from profkit.run.experiment import Experiment
from profkit.savings import Edit, Trial, shrink
from profkit.savings.cases import cases_of
from profkit.savings.replay import replay
from profkit.savings.step_time import step_time
from profkit.source.remark_kinds import THREADS_SET
from profkit.source.settings import threads_set
from profkit.source.syntax import parse_line
from profkit.trace import Category, Rows, median

_SLEEP_NS = 10_000
"""Half of it is a context switch each way and the waking (lmbench's ``lat_ctx`` for processes with data: 5 µs). The
other half is the hundred pauses that GNU OpenMP spins before a thread sleeps if there are more threads than CPUs (its
manual under ``GOMP_SPINCOUNT``), of 140 cycles each on Intel's processors since Skylake."""
_WORTH = MEDIUM_FROM
"""The lower end of the estimate has to reach this."""
_MIN_READINGS = 3
_MIN_SLEEPS = 1000
"""Per second and CPU. Python's threads hand over the interpreter at most 200 times a second; and a program that waits
for files or other processes uses so little CPU time that a few sleeps are a large share of it."""
_SHARED_OUT_NS = 20_000
"""PyTorch splits 32,768 elements and more among threads (``at::internal::GRAIN_SIZE``), which take about as long to
read and write at 10 GB/s."""
_MOST_GAIN = 0.9
_UNCERTAINTY = 0.5
"""A switch takes from two to ten microseconds, depending on what the thread finds in the caches; a pause takes a third
on other processors."""


class _Threads(Struct, frozen=True):
    """``threads`` in ``processes`` each, on ``cpus``; how often the main process ``sleeps`` a second, and the share of
    its CPU time that this takes."""

    threads: int
    processes: int
    cpus: int
    sleeps: float = 0.0
    lost_share: float = 0.0


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def thread_oversubscription(facts: Facts) -> Suspicions:
    """One finding, at the line that sets the number of threads, else at the line at which the step computes."""
    found = _threads_of(facts)
    if found.threads * found.processes <= found.cpus or found.sleeps < _MIN_SLEEPS * found.cpus:
        return
    rows = _shared_out(facts)
    edit = _without_sleeps(facts, rows, found.lost_share)
    saved = replay(facts, edit).fraction if rows.size else 0.0
    if saved * (1 - _UNCERTAINTY) < _WORTH:
        return
    places = _places(facts, rows, found)
    per_step = round(found.sleeps * step_time(facts).ns / 1e9)
    yield Suspicion(
        message=f"Waking threads takes {format_share(saved)} of the step: operators run on "
        f"{format_count(found.threads, 'thread')} and the program has {format_count(found.cpus, 'CPU')}. Its "
        f"threads go to sleep {per_step:,} times a step.",
        fix=f"Use as many threads as there are CPUs: `torch.set_num_threads({found.cpus})`, or "
        "`len(os.sched_getaffinity(0))` if it runs on other machines too. Unset OMP_NUM_THREADS if it says "
        "more.",
        rows=rows,
        edit=edit,
        confidence=0.8,
        count=1,
        places=Places.of(places[:3]),
        evidence={
            "threads": found.threads,
            "cpus": found.cpus,
            "sleeps_per_step": per_step,
            "sleeps_per_second": round(found.sleeps),
        },
        trial=_run_on_fewer(facts, rows, found),
    )


def _threads_of(facts: Facts) -> _Threads:
    host, set_now = facts.run.host, facts.run.flags.get("torch_threads")
    if host is None:
        raise CannotLook("the numbers of CPUs and threads were not recorded (run the program under profkit)")
    threads = set_now if isinstance(set_now, int) and set_now > 0 else host.torch_threads
    workers = [worker.threads for loader in loader_accounts(facts) for worker in loader.workers if worker.threads > 1]
    most, processes = (threads, 1) if not workers or threads >= sum(workers) else (max(workers), len(workers))
    if most * processes <= host.cpus:
        return _Threads(most, processes, host.cpus)
    return _Threads(most, processes, host.cpus, *_sleeping(facts, host.cpus))


def _sleeping(facts: Facts, cpus: int) -> tuple[float, float]:
    """Sleeps a second, and their share of the CPU time, in the busier half of the intervals between readings: while the
    program starts, or writes a recording, no operator is split among threads."""
    read = [sample for sample in facts.samples if sample.switches is not None]
    if len(read) < _MIN_READINGS:
        raise CannotLook("the program ran too short, or on a system that does not count how often threads sleep")
    time_ns, switches, used = np.array([(s.time_ns, s.switches, s.cpu_share * cpus) for s in read], dtype=np.float64).T
    apart_ns = np.diff(time_ns).clip(min=1)
    rate = np.diff(switches) / apart_ns * 1e9
    busy = rate >= median(rate)
    sleeps = float(np.average(rate[busy], weights=apart_ns[busy]))
    cpu = float(np.average(used[1:][busy], weights=apart_ns[busy]))
    return sleeps, min(1.0, sleeps * _SLEEP_NS / 1e9 / max(cpu, 0.01))


def _shared_out(facts: Facts) -> Rows:
    """The measured steps' outermost operators on the threads that take turns that are long enough to be split among
    threads, except those that load a batch. Compiled code counts as one: on a CPU its own loops are not recorded."""
    events, tree = facts.trace.events, facts.tree
    computing = facts.trace.in_categories(Category.OPERATOR, Category.COMPILED_CODE)
    outermost = tree.outermost(computing) & ~tree.under(facts.loading)
    rows = facts.measured_rows(outermost & facts.serial_lanes[events.lane])
    return rows[spent_ns(facts, rows) >= _SHARED_OUT_NS]


def _without_sleeps(facts: Facts, rows: Rows, lost_share: float) -> Edit:
    """The operators without the time of the sleeps, all of which are assumed to lie in them."""
    spent = spent_ns(facts, rows)
    measured_ns = float(facts.steps.duration_ns[facts.steps.measured].sum())
    lost = min(_MOST_GAIN, lost_share * measured_ns / max(float(spent.sum()), 1.0))
    return shrink(rows, ((1 - lost) * spent).astype(np.int64), _UNCERTAINTY)


def _places(facts: Facts, rows: Rows, found: _Threads) -> tuple[Location, ...]:
    """The line that sets this number, or the only line that sets a number which its text does not show; then the lines
    at which the step computes."""
    lines = [(place, parse_line(place.source)) for place in remarked(facts, THREADS_SET)]
    numbers = {place: threads_set(line) if line is not None else (None,) for place, line in lines}
    setting = [place for place in numbers if found.threads in numbers[place]]
    unknown = [place for place in numbers if None in numbers[place]]
    known = setting[:1] or (unknown if len(unknown) == 1 else [])
    return (*known, *locations_of(facts, sites_by_time(facts, rows)[:2]))


def _run_on_fewer(facts: Facts, rows: Rows, found: _Threads) -> Trial | None:
    """Run the costliest operators on both numbers of threads, with their backward pass if there is one."""
    called = np.intersect1d(program_operators(facts), rows)
    cases = cases_of(facts, called) if facts.operators.has_shapes and found.processes == 1 else ()
    if not cases:
        return None
    backward = backward_of(facts, called).size > 0
    experiment = Experiment("fewer-threads", cases, to=str(found.cpus), count=found.threads, backward=backward)
    spent = spent_ns(facts, rows)
    return Trial(experiment, lambda factor: shrink(rows, (factor * spent).astype(np.int64), _UNCERTAINTY))
