"""Accounts of runs whose looks are known, column by column."""

from __future__ import annotations

from profkit.run.directory import CallSite
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime

MS = 1_000_000
BEGUN_NS = 10_000 * MS
_PLACES = (
    Place(CallSite("train.py", 43, "main", "loss.backward()"), loop=42, trains=True),
    Place(CallSite("train.py", 46, "main", "evaluate(model)"), loop=39),
    Place(CallSite("train.py", 12, "evaluate", "scores.append(model(x))"), loop=11, evaluates=True),
    Place(CallSite("model.py", 7, "Net.forward", "return self.body(x)")),
    Place(CallSite("data.py", 9, "Sampler.__iter__", "groups = group(self.labels)")),
    Place(CallSite("train.py", 42, "main", "for x in loader:"), loop=39),
    Place(CallSite("train.py", 50, "main", "rows = shuffled(rows)"), loop=39),
    Place(CallSite("data.py", 10, "Sampler.__iter__", "rows += draw(groups)")),
)
_STACKS = (
    (StackActivity.BACKWARD, (0,)),
    (StackActivity.OTHER, (1, 2)),
    (StackActivity.FORWARD, (1, 2, 3)),
    (StackActivity.DATA, (5, 4)),
    (StackActivity.OTHER, (6,)),
    (StackActivity.FORWARD, (0, 3)),
    (StackActivity.DATA, (5, 7)),
)
UPDATE, SCORE, FORWARD, BATCH, EVALUATE, CALLED, DRAW = range(len(_STACKS))
"""Stacks: the training's backward pass, a line of an evaluation, a model called by it, a sampler's line that makes a
batch, a line between the epochs, the model called by the training, and another line of the sampler."""


def looked_at(columns: list[dict[int, int]], look_ms: float = 1, column_ms: int = 100) -> RunAccount:
    """The account of a run with these nanoseconds of each stack in each column."""
    stacks = []
    for number, (activity, places) in enumerate(_STACKS):
        seen = [(at, column[number]) for at, column in enumerate(columns) if column.get(number)]
        time_ns, edges = sum(ns for _, ns in seen), ([at for at, _ in seen] or [0])
        first_ns, last_ns = edges[0] * column_ms * MS, (edges[-1] + 1) * column_ms * MS
        looks = max(1, int(time_ns / look_ms / MS)) if time_ns else 0
        stacks.append(StackTime(activity.value, places, time_ns, time_ns, first_ns, last_ns, looks, 1))
    told = tuple(tuple(column.items()) for column in columns)
    until_ns = BEGUN_NS + len(columns) * column_ms * MS
    return RunAccount(BEGUN_NS, BEGUN_NS, until_ns, _PLACES, tuple(stacks), column_ms * MS, told, is_over=True)


def slow_steps(stack: int, count: int = 4, ms: int = 180) -> tuple[list[dict[int, int]], list[float]]:
    """Columns, and the milliseconds of the steps: ten of 20 ms, then one in which this stack takes so much more, and so
    on. A column of the training begins the run."""
    train = {UPDATE: 80 * MS, CALLED: 20 * MS}
    left = 100 - ms % 100
    last = {stack: ms % 100 * MS, UPDATE: left * MS} if stack != UPDATE else {stack: 100 * MS}
    columns, steps = [train], list[float]()
    for _ in range(count):
        columns += [train, train, *([{stack: 100 * MS}] * (ms // 100)), last]
        steps += [20.0] * 10 + [float(ms + left)]
    return columns, steps
