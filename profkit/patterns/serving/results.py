"""Waits for what an engine's step computes."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.serving.steps import engine_work
from profkit.trace.events import Bools


@derived_once
def awaits_a_step(facts: Facts) -> Bools:
    """Which of the facts' waits last until the last work of an engine's step is done. The engine needs that step's
    tokens: what holds the device up is what the host does next, not that it waits."""
    waits, work = facts.waits, engine_work(facts)
    if work is None or not waits.rows.size:
        return np.zeros(len(waits.rows), dtype=bool)
    done_ns = np.sort(work.end_ns[work.kernels > 0])
    begun_ns = facts.trace.events.start_ns[waits.rows]
    first = np.searchsorted(done_ns, begun_ns, side="right")
    never = np.iinfo(np.int64).max
    lasts: Bools = np.append(done_ns, never)[first] <= begun_ns + waits.duration_ns
    return lasts
