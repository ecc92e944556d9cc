"""A DataLoader starts its worker processes anew for every epoch, and the epochs are short.

What it detects
Iterators of a DataLoader with workers and without `persistent_workers`, if starting the workers, waiting for their
first batch and ending them takes at least 3 % of the time. If at least half of the recorded steps begin an iterator,
this is measured there, else by the accounts that workers keep of themselves, over three epochs or more. Long epochs pay
as much, but hardly notice. Only profkit's own recordings say whether workers persist.

Why is this bad?
Each worker is a new process with a copy of the program's memory or, if processes are spawned, with all modules imported
and the dataset unpickled again. The training waits until the first of them has read a batch, and at the end of the
epoch it waits until all have exited.

Example
    loader = DataLoader(dataset, batch_size=64, num_workers=4)
    for epoch in range(100):
        for x, y in loader:
            train_step(x, y)

Use instead
    loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
    for epoch in range(100):
        for x, y in loader:
            train_step(x, y)

How the saving is estimated
The time between drawing the workers' seed and the first request, in which nothing else happens, vanishes. The first
request keeps what busy workers take for a batch: the usual time between two requests times their number. The last
request, in which the workers end, keeps the usual wait. If epochs are longer than the recording: the time from the
start of the workers until one of them has the first batch ready, less what a batch takes them otherwise, as a share of
the time from one start to the next. Then the end of the workers does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.core.marks import STEP_MARK
from profkit.patterns import in_most_steps, length_ns, loader_places, spent_ns
from profkit.patterns.loader_accounts import restarts_of
from profkit.patterns.requests import asked_of_workers, begins_an_iterator, worker_requests
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.savings import Edit, combine, shrink, shrink_spans
from profkit.trace import NONE, Category, Rows, median

_LEAST_START_NS = 1_000_000
"""No system starts a process with PyTorch in it faster: anything shorter was not a start of workers."""
_WORTH = MEDIUM_FROM
"""Workers that persist keep their memory, which only a visible gain is worth."""
_UNCERTAINTY = 0.3
"""While the workers start, those already running read ahead; and a fork slows whatever touches its memory first."""
_SEEDING = ("aten::random_", "aten::item")


_FIX = "Pass `persistent_workers=True` to the DataLoader, and make the loader once, outside the loop over epochs."


class _Epoch(Struct, frozen=True):
    """One iterator: its first and its last request (`NONE` if it goes on beyond the recording), when its workers
    started, and what the two requests keep."""

    first: int
    last: int
    start_ns: int
    end_ns: int
    first_kept_ns: int
    last_kept_ns: int


@rule(Kind.FAULT)
def workers_respawned(facts: Facts) -> Suspicions:
    """One finding, at the line that makes the DataLoader, or at the loops over it."""
    if facts.run.torch is None:
        raise CannotLook("only profkit's own recordings say whether the workers of a DataLoader persist")
    started = [use.workers for use in facts.run.loaders if use.workers and not use.persistent_workers]
    epochs = [epoch for epoch in _epochs(facts, max(started)) if facts.measured[epoch.first]] if started else []
    rows = np.array([epoch.first for epoch in epochs], dtype=np.int64)
    if len(rows) < 2 or not in_most_steps(facts, rows):
        yield from _between_recordings(facts)
        return
    starting = median([epoch.end_ns - epoch.start_ns for epoch in epochs])
    waiting = median(spent_ns(facts, rows))
    ended = np.array([epoch.last for epoch in epochs if epoch.last >= 0], dtype=np.int64)
    ending = median(spent_ns(facts, ended)) if ended.size else 0.0
    them = pick_form(max(started), "it", "them")
    yield Suspicion(
        message=f"Each epoch starts {format_count(max(started), 'worker')} anew: "
        f"{format_time(starting)} to start {them}, {format_time(waiting)} until the first batch and "
        f"{format_time(ending)} to end {them}.",
        fix=_FIX,
        rows=rows,
        edit=_keep_the_workers(epochs),
        worth=_WORTH,
        places=loader_places(facts, rows),
        evidence={
            "workers": max(started),
            "starting_ns": int(starting),
            "first_batch_ns": int(waiting),
            "ending_ns": int(ending),
        },
    )


def _between_recordings(facts: Facts) -> Suspicions:
    """Epochs of more steps than were recorded: the workers' own accounts tell of their starts.

    The measured steps stand for the epoch: each gives back the share that the starts take of it.
    """
    rows = facts.measured_rows(facts.tree.outermost(facts.loading & asked_of_workers(facts)))
    restarts = max(restarts_of(facts), key=lambda one: one.lost_ns / max(one.period_ns, 1), default=None)
    share = 0.0 if restarts is None else restarts.lost_ns / max(restarts.period_ns, restarts.lost_ns, 1)
    if restarts is None or not rows.size or share < _WORTH:
        return
    start_ns, end_ns = facts.steps.start_ns[facts.steps.measured], facts.steps.end_ns[facts.steps.measured]
    kept_ns = ((1 - share) * length_ns(facts, start_ns, end_ns)).astype(np.int64)
    yield Suspicion(
        message=f"Each epoch starts {format_count(restarts.workers, 'worker')} anew. The first batch comes after "
        f"{format_time(restarts.first_ns)}; a worker that persists takes {format_time(restarts.batch_ns)}. An "
        f"epoch takes {format_time(restarts.period_ns)}.",
        fix=_FIX,
        rows=rows,
        edit=shrink_spans(start_ns, end_ns, kept_ns, _UNCERTAINTY),
        confidence=0.8,
        places=loader_places(facts, rows),
        count=restarts.count,
        evidence={
            "workers": restarts.workers,
            "starts": restarts.count,
            "first_batch_ns": restarts.first_ns,
            "batch_ns": restarts.batch_ns,
            "epoch_ns": restarts.period_ns,
        },
    )


def _epochs(facts: Facts, workers: int) -> Iterator[_Epoch]:
    """The iterators that began within the recording and started workers."""
    events = facts.trace.events
    every = np.flatnonzero(worker_requests(facts))
    before, *iterators = np.split(every, np.flatnonzero(begins_an_iterator(facts, every)))
    usual_length = Counter(map(len, iterators[:-1])).most_common(1)
    previous_ns = int(events.ends_of(before).max(initial=0))
    busy = _main_thread_events(facts)
    for at, rows in enumerate(iterators):
        ends = at + 1 < len(iterators) or [len(rows)] == [length for length, _ in usual_length]
        start_ns, end_ns = _longest_gap_after_a_seed(facts, busy, previous_ns, int(events.start_ns[rows[0]]))
        previous_ns = int(events.ends_of(rows[-1]))
        # A single request: the "seed" was a number that the program drew between two batches.
        if end_ns - start_ns < _LEAST_START_NS or len(rows) < 2:
            continue
        first_ns, middle = int(spent_ns(facts, rows[:1])[0]), rows[1:-1]
        batch_ns = workers * int(median(np.diff(events.start_ns[middle]))) if len(middle) > 1 else first_ns
        wait_ns = int(median(spent_ns(facts, middle))) if middle.size else 0
        yield _Epoch(int(rows[0]), int(rows[-1]) if ends else NONE, start_ns, end_ns, min(batch_ns, first_ns), wait_ns)


def _main_thread_events(facts: Facts) -> Rows:
    """The outermost operators and ranges of the main thread, except the steps' own."""
    events = facts.trace.events
    steps = facts.trace.where_name(lambda name: name.startswith(STEP_MARK))
    shown = facts.trace.in_categories(Category.OPERATOR, Category.ANNOTATION) & ~steps
    return np.flatnonzero(facts.tree.outermost(shown & (events.lane == facts.steps.main_lane)))


def _longest_gap_after_a_seed(facts: Facts, busy: Rows, since_ns: int, until_ns: int) -> tuple[int, int]:
    """The longest time between drawing a seed and the main thread's next event: there the workers start."""
    events = facts.trace.events
    rows = busy[(events.start_ns[busy] >= since_ns) & (events.start_ns[busy] < until_ns)]
    start_ns = events.ends_of(rows)
    end_ns = np.append(events.start_ns[rows[1:]], until_ns)[: len(rows)]
    gap_ns = np.where(facts.trace.named(*_SEEDING)[rows], end_ns - start_ns, 0)
    longest = int(gap_ns.argmax()) if gap_ns.size else NONE
    return (int(start_ns[longest]), int(end_ns[longest])) if longest >= 0 and gap_ns[longest] > 0 else (0, 0)


def _keep_the_workers(epochs: list[_Epoch]) -> Edit:
    def column(name: str) -> Rows:
        return np.array([getattr(epoch, name) for epoch in epochs], dtype=np.int64)

    started = shrink_spans(column("start_ns"), column("end_ns"), 0, _UNCERTAINTY)
    ended = column("last") >= 0
    ending = shrink(column("last")[ended], column("last_kept_ns")[ended], _UNCERTAINTY)
    return combine([started, shrink(column("first"), column("first_kept_ns"), _UNCERTAINTY), ending])
