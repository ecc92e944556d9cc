"""The steps of an engine that serves a language model, by the ranges that it opens around them.

vLLM calls the range of a step ``execute_context_2(512)_generation_30(30)``: the sequences whose prompt it computes, the
tokens of these, and the same for those that generate. Newer versions begin with all tokens and write sums in the
parentheses (``sq``: tokens that are computed, ``sk``: tokens they attend to). SGLang calls it ``step[DECODE bs=32]`` or
``step[EXTEND bs=15 toks=15360]``. A tool that opens vLLM's ranges around SGLang's gets one account, vLLM's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.trace.events import NONE, Category, Int64s, Rows
from profkit.trace.statistics import median

_VLLM = re.compile(r"execute_(?:\d+_)?context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
_SGLANG = re.compile(r"step\[(\w+) bs=(\d+)(?: toks=(\d+))?\]")
_SUM = re.compile(r"(sqsq|sqsk|sq|sk)(\d+)")
_MOST_NAMED = 3
"""Functions in an account."""
_LEAST_NAMED = 0.1
"""Of the time between two steps."""
_ENOUGH = 3
"""Steps that make a rate. A single one may begin with work from before the recording."""
_MOSTLY = 0.5
"""Of a step's time: a device that works so long sets the rate."""


class Step(Struct, frozen=True):
    """What the name of a range says: the sequences in prefill and in generation, the tokens that are computed, and
    those that they attend to (0 if it does not say)."""

    prefilled: int
    generating: int
    tokens: int
    context_tokens: int

    @property
    def kind(self) -> str:
        if self.prefilled and self.generating:
            return "mixed"
        return "prefill" if self.prefilled else "decode"


class StepsOfKind(Struct, frozen=True):
    """All steps of one kind: see `profkit.findings.serving.EngineSteps`, whose names these are."""

    engine: str
    kind: str
    steps: int
    sequences: float
    tokens: float
    context_tokens: float
    step_ns: float
    device_ns: float
    replayed: float
    idle_ns: float
    idle_in: tuple[str, ...]
    tokens_per_s: float


def read_vllm(name: str) -> Step | None:
    """A step by the name of vLLM's range; None for any other name."""
    found = _VLLM.search(name)
    if found is None:
        return None
    prefill, generation = (_sums(found[2]), _sums(found[4]))
    tokens = prefill.get("sq", 0) + generation.get("sq", 0)
    return Step(int(found[1]), int(found[3]), tokens, prefill.get("sk", 0) + generation.get("sk", 0))


def _sums(text: str) -> dict[str, int]:
    return {"sq": int(text)} if text.isdecimal() else {key: int(value) for key, value in _SUM.findall(text)}


def read_sglang(name: str) -> Step | None:
    """A step by the name of SGLang's range; None for any other name."""
    found = _SGLANG.search(name)
    if found is None:
        return None
    sequences = int(found[2])
    if found[1] in ("DECODE", "IDLE"):
        return Step(0, sequences, sequences, 0)
    tokens = int(found[3] or 0)
    return Step(sequences, 0, tokens, 0) if found[1] == "EXTEND" else Step(sequences, sequences, tokens, 0)


_READERS: tuple[tuple[str, Callable[[str], Step | None]], ...] = (("vLLM", read_vllm), ("SGLang", read_sglang))


def engine_steps(facts: Facts) -> tuple[StepsOfKind, ...]:
    """The kinds of steps, the one with most time first; none if no engine's ranges were recorded."""
    for engine, read in _READERS:
        named = facts.trace.where_name(lambda name: read(name) is not None)  # noqa: B023  # called at once
        rows = np.flatnonzero(named & (facts.trace.events.category == Category.ANNOTATION))
        rows = rows[np.argsort(facts.trace.events.start_ns[rows], kind="stable")]
        steps = [read(facts.trace.name_of(row)) for row in rows.tolist()]
        if any(step is not None and step.prefilled + step.generating for step in steps):
            if "SGLang" not in engine and facts.trace.where_name(lambda name: read_sglang(name) is not None).any():
                engine = "SGLang"  # noqa: PLW2901  # vLLM's names around SGLang's steps tell more
            return tuple(_of_kinds(facts, engine, rows, [step for step in steps if step is not None]))
    return ()


def _of_kinds(facts: Facts, engine: str, rows: Rows, steps: Sequence[Step]) -> list[StepsOfKind]:
    work = _Work.of(facts, rows)
    found = []
    for kind in sorted({step.kind for step in steps if step.prefilled + step.generating}):
        mine = np.array([number for number, step in enumerate(steps) if step.kind == kind])
        of_kind = [steps[number] for number in mine.tolist()]
        step_ns, busy_ns = _median(work.length_ns[mine]), _median(work.busy_ns[mine])
        generating = sum(step.generating for step in of_kind) / len(of_kind)
        found.append(
            StepsOfKind(
                engine,
                kind,
                len(of_kind),
                sum(step.prefilled + step.generating for step in of_kind) / len(of_kind),
                sum(step.tokens for step in of_kind) / len(of_kind),
                sum(step.context_tokens for step in of_kind) / len(of_kind),
                step_ns,
                busy_ns,
                float(work.replayed[mine].sum() / max(work.kernels[mine].sum(), 1)),
                _median(work.idle_ns[mine][work.idle_ns[mine] >= 0]),
                _functions(facts, rows, work, mine),
                generating / step_ns * 1e9 if len(of_kind) >= _ENOUGH or busy_ns >= _MOSTLY * step_ns > 0 else 0.0,
            )
        )
    return sorted(found, key=lambda one: -one.step_ns * one.steps)


def _median(values: Int64s) -> float:
    return float(median(values)) if values.size else 0.0


class _Work(Struct, frozen=True):
    """Columns over the steps: from the start of its work to that of the next one's (of the last: how long it takes the
    device or the host, whichever is longer), how long the
    device works on it, its kernels and those of graphs, and how long the device idled before it (-1 if unknown), from
    ``idle_start_ns`` on."""

    length_ns: Int64s
    busy_ns: Int64s
    kernels: Int64s
    replayed: Int64s
    idle_ns: Int64s
    idle_start_ns: Int64s

    @classmethod
    def of(cls, facts: Facts, rows: Rows) -> _Work:
        events, launches, count = facts.trace.events, facts.launches, len(rows)
        starts_ns = events.start_ns[rows]
        number = np.searchsorted(starts_ns, launches.launched_ns, side="right") - 1
        inside = number >= 0
        work, of = launches.work[inside], number[inside]
        first_ns, last_ns = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
        np.minimum.at(first_ns, of, events.start_ns[work])
        np.maximum.at(last_ns, of, events.ends_of(work))
        has = np.bincount(of, minlength=count) > 0
        first_ns = np.where(has, first_ns, starts_ns)
        last_ns = np.where(has, last_ns, events.ends_of(rows))
        length_ns = np.diff(first_ns, append=0)
        length_ns[-1] = max(last_ns[-1] - first_ns[-1], events.duration_ns[rows[-1]])
        graphs = facts.trace.where_name(lambda name: "GraphLaunch" in name)
        call = launches.call[inside]
        is_replayed = graphs[call.clip(min=0)] & (call != NONE)
        kernels = events.category[work] == Category.KERNEL
        idle_ns = np.full(count, -1, dtype=np.int64)
        idle_ns[1:] = (first_ns[1:] - last_ns[:-1]).clip(min=0)
        return cls(
            length_ns,
            facts.device.busy.covered_within(first_ns, last_ns),
            np.bincount(of[kernels], minlength=count),
            np.bincount(of[kernels & is_replayed], minlength=count),
            idle_ns,
            np.concatenate([[0], last_ns[:-1]]),
        )


def _functions(facts: Facts, rows: Rows, work: _Work, mine: Int64s) -> tuple[str, ...]:
    """The Python functions that begin while the device idles before one of these steps and take most of that: the
    outermost of those that lie inside."""
    events, tree = facts.trace.events, facts.tree
    idling = mine[work.idle_ns[mine] > 0]
    start_ns = work.idle_start_ns[idling]
    end_ns = start_ns + work.idle_ns[idling]
    if not idling.size:
        return ()
    functions = np.flatnonzero((events.category == Category.PYTHON) & (events.lane == events.lane[rows[0]]))
    at = np.searchsorted(start_ns, events.start_ns[functions], side="right") - 1
    inside = (at >= 0) & (tree.end_ns[functions] <= end_ns[at.clip(min=0)])
    outer = np.flatnonzero(tree.outermost(facts.trace.mask_of(functions[inside])))
    taken_ns = np.bincount(
        events.name_code[outer], tree.end_ns[outer] - events.start_ns[outer], minlength=len(facts.trace.names)
    )
    most = np.argsort(-taken_ns, kind="stable")[:_MOST_NAMED]
    total_ns = (end_ns - start_ns).sum()
    return tuple(facts.trace.names[code] for code in most.tolist() if taken_ns[code] >= _LEAST_NAMED * total_ns)
