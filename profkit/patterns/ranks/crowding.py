"""When a rank was ready to work, and other threads had the CPUs.

The system counts that for the recorded thread, and profkit notes it of each measured step. Where within the step it
happened nobody knows, but only what runs on a CPU can be put aside: it is taken out of that, in proportion, and out of
what may have run there only as far as it is more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profkit.derive.launch.table import Cause
from profkit.derive.steps.crowding import crowding_by_step
from profkit.patterns.ranks.working import Pieces, Spent
from profkit.trace.events import NONE, Bools, Int64s
from profkit.trace.statistics import distinct

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_RUNS = (Cause.HOST, Cause.GARBAGE, Cause.MEMORY)
_MAY_RUN = (Cause.UNKNOWN, Cause.INPUT, Cause.UNRECORDED)


def set_crowding_apart(facts: Facts, pieces: Pieces, spent: Spent) -> Spent:
    """What the pieces of steps without line marks spent, with the time without a CPU as a cause of its own."""
    left_ns = crowding_by_step(facts.steps, facts.run)
    if left_ns is None or not len(spent.piece):
        return spent
    step, taken_ns = pieces.step[spent.piece], np.zeros(len(spent.piece))
    runs = _RUNS if facts.device.present else (*_RUNS, Cause.COMPUTE)
    for causes in (runs, _MAY_RUN):
        mine = np.isin(spent.cause, causes)
        there_ns = np.bincount(step, np.where(mine, spent.time_ns, 0), len(left_ns))
        share = np.minimum(left_ns / np.maximum(there_ns, 1), 1)
        taken_ns[mine] = (share[step] * spent.time_ns)[mine]
        left_ns -= share * there_ns
    return _with(spent, taken_ns.astype(np.int64))


def _with(spent: Spent, taken_ns: Int64s) -> Spent:
    """The rows less what is taken from each, which their piece spends without a CPU."""
    piece = distinct(spent.piece[taken_ns > 0])
    added = np.bincount(spent.piece, taken_ns).astype(np.int64)[piece]
    kept: Bools = spent.time_ns > taken_ns
    at = np.concatenate([spent.piece[kept], piece])
    order = np.argsort(at, kind="stable")
    return Spent(
        at[order],
        np.concatenate([spent.cause[kept], np.full(len(piece), int(Cause.CONTENTION))])[order],
        np.concatenate([spent.site[kept], np.full(len(piece), NONE)])[order],
        np.concatenate([(spent.time_ns - taken_ns)[kept], added])[order],
    )
