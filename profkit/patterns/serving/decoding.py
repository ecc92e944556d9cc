"""Steps that only generate: one token for each sequence, by an engine or by a loop of the program's own."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.patterns.serving.replays import by_graphs
from profkit.patterns.serving.steps import EngineWork, engine_work
from profkit.patterns.serving.token_passes import TokenPasses, token_passes
from profkit.trace.events import Category, Int64s

_FEWEST_KERNELS = 20
"""In a step. A graph of fewer gathers little."""


class Decoding(Struct, frozen=True):
    """Steps that only generate, launched kernel by kernel: when the host launches each, for how many ``sequences``
    (a mean), and with how many ``kernels`` (a mean). ``engine`` is empty for a loop of the program's own. ``others``
    counts such steps that a graph launches."""

    start_ns: Int64s
    end_ns: Int64s
    sequences: float
    kernels: float
    engine: str = ""
    others: int = 0

    @property
    def host(self) -> Intervals:
        return union(self.start_ns, self.end_ns)


class Generating(Struct, frozen=True):
    """When the host is in steps that add tokens, prompts beside them or not, and the ``sequences`` of one (a mean)."""

    time: Intervals
    sequences: float


@derived_once
def generating_time(facts: Facts) -> Generating | None:
    """The measured steps that add tokens, of an engine or a loop of one's own; None if there are none."""
    starts_ns = facts.trace.events.start_ns
    work = engine_work(facts)
    if work is None:
        passes = token_passes(facts)
        return None if passes is None else Generating(union(starts_ns[passes.rows], passes.end_ns), passes.sequences)
    mine = np.sort(np.concatenate([work.of_kind("decode"), work.of_kind("mixed")]))
    mine = mine[facts.steps.in_measured(starts_ns[work.named.rows[mine]])]
    if not mine.size:
        return None
    sequences = float(np.mean([work.named.steps[at].generating for at in mine.tolist()]))
    return Generating(union(starts_ns[work.named.rows[mine]], _until_next(facts, work)[mine]), sequences)


@derived_once
def eager_decoding(facts: Facts) -> Decoding | None:
    """The steps that generate and are launched kernel by kernel; None if there are none."""
    if not facts.device.present:
        return None
    engine = engine_work(facts)
    if engine is not None:
        return _of_engine(facts, engine)
    passes = token_passes(facts)
    return None if passes is None else _of_passes(facts, passes)


def _of_engine(facts: Facts, work: EngineWork) -> Decoding | None:
    mine = work.of_kind("decode")
    starts_ns = facts.trace.events.start_ns[work.named.rows]
    mine = mine[facts.steps.in_measured(starts_ns[mine])]
    eager = mine[(work.replayed[mine] == 0) & (work.kernels[mine] >= _FEWEST_KERNELS)]
    if not eager.size:
        return None
    until = _until_next(facts, work)
    sequences = float(np.mean([work.named.steps[at].generating for at in eager.tolist()]))
    kernels = float(work.kernels[eager].mean())
    return Decoding(starts_ns[eager], until[eager], sequences, kernels, work.named.engine, len(mine) - len(eager))


def _until_next(facts: Facts, work: EngineWork) -> Int64s:
    """When the host ends each step: with the start of the next one, if that follows at once."""
    rows, events = work.named.rows, facts.trace.events
    follows = np.append(work.in_turn[1:], False)
    return np.where(follows, np.append(events.start_ns[rows[1:]], 0), events.ends_of(rows))


def _of_passes(facts: Facts, passes: TokenPasses) -> Decoding | None:
    events, launches = facts.trace.events, facts.launches
    start_ns = events.start_ns[passes.rows]
    at = np.searchsorted(start_ns, launches.launched_ns, side="right") - 1
    inside = (at >= 0) & (launches.launched_ns < passes.end_ns[at.clip(min=0)])
    is_kernel = events.category[launches.work] == Category.KERNEL
    kernels = np.bincount(at[inside & is_kernel], minlength=len(passes))
    replayed = np.bincount(at[inside & is_kernel & by_graphs(facts)], minlength=len(passes))
    eager = (replayed == 0) & (kernels >= _FEWEST_KERNELS)
    if not eager.any():
        return None
    mean = float(kernels[eager].mean())
    return Decoding(start_ns[eager], passes.end_ns[eager], passes.sequences, mean, others=int((~eager).sum()))
