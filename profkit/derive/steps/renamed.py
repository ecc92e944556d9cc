"""Steps that show as ranges of one kind whose digits change.

Servers of language models name each step after what it holds: ``execute_32_context_0(sq0sk0)_generation_32(…)`` (vLLM),
``step[DECODE bs=32]`` and ``step[EXTEND bs=1 toks=8192]`` (SGLang), and training loops after its number. The words in
front stay. Ranges are of one kind if these words are the same; the outermost of a kind are the steps if they hold most
of what the thread does. An engine's are steps in any case: it waits for the device, and samples, outside of them.

Layers and micro-batches are numbered as well, but within a step. If their numbers begin anew again and again, each
round is a step.
"""

from __future__ import annotations

import re

import numpy as np

from profkit.derive.device.launches import Launches
from profkit.derive.steps.layers import are_layers
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Bools, Category, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, median

_KIND = re.compile(r"([^\w]{0,3}[A-Za-z][A-Za-z_ .\-]{0,60}?)[\W_]{0,3}(?=\d|[\[(])[^\d]{0,60}(\d{1,18})")
"""The words before the first digit or bracket, and the first number."""
_ENGINES = re.compile(
    r"execute_(?:\d{1,9}_)?context_\d|execute_diffusion_\d|step\[[A-Z_]{2,30} bs=\d"
    r"|(?:\[Executor\] )?_forward_step \d{1,18}:"
)
"""The names that vLLM (``gpu_model_runner.py``), xDiT, SGLang (``scheduler.py``) and TensorRT-LLM (``py_executor.py``)
give to a step: one is enough."""
_PARTS = re.compile(
    r"layer|block|stage|head|expert|chunk|bucket|shard|micro|module|forward|backward|capture|warm", re.IGNORECASE
)
"""What a step consists of or begins with."""
_NOT_THE_PROGRAMS = ("##", "nccl:", "Optimizer.", "ProfilerStep#", "enumerate(")
"""PyTorch's own ranges; those of compiled code hold a hash."""
_COVERED_SHARE = 0.6
"""The share of the thread's outermost events that steps must hold, as with a pattern that repeats."""
_CYCLES = 2
_MOST_TIMES = 3.0
"""A step that takes so many times the median does other work as well (see `collect.boundaries.cycles`)."""

Span = tuple[Int64s, Int64s]


def find_renamed(trace: Trace, tree: Tree, launches: Launches, lane: int) -> Span | None:
    """The starts and ends of these steps; None if no ranges are."""
    events = trace.events
    here = (events.category == Category.ANNOTATION) & (events.lane == lane)
    kinds, first = _kinds_of(trace, distinct(events.name_code[here]))
    of_kind = np.array([kinds.get(code, -1) for code in range(len(trace.names))], dtype=np.int64)
    known = (events.category == Category.OPERATOR) | here | (events.category == Category.RUNTIME)
    outermost = tree.outermost(known & (events.lane == lane))
    whole_ns = int(events.duration_ns[outermost].sum())
    best: tuple[int, Span] | None = None
    for kind in sorted(set(kinds.values())):
        mine = here & (of_kind[events.name_code] == kind)
        rows = np.flatnonzero(tree.outermost(mine))
        taken_ns = int(events.duration_ns[rows].sum())
        is_most = taken_ns >= _COVERED_SHARE * whole_ns or _is_engine(trace, rows)
        if not is_most or (best is not None and taken_ns <= best[0]):
            continue
        if (found := _steps_of(trace, tree, launches, rows, first)) is not None:
            best = taken_ns, found
    return None if best is None else best[1]


def _kinds_of(trace: Trace, codes: np.ndarray) -> tuple[dict[int, int], dict[int, int]]:
    """The kind of each name that has one, by the name's code, and its first number. All of an engine's are one kind."""
    numbers: dict[str, int] = {}
    kinds: dict[int, int] = {}
    first: dict[int, int] = {}
    for code in codes.tolist():
        name = trace.names[code]
        if _ENGINES.match(name):
            kinds[code], first[code] = numbers.setdefault("", len(numbers)), 0
        elif not name.startswith(_NOT_THE_PROGRAMS) and (match := _KIND.match(name)):
            kinds[code] = numbers.setdefault(match[1].lower(), len(numbers))
            first[code] = int(match[2])
    return kinds, first


def _steps_of(trace: Trace, tree: Tree, launches: Launches, rows: Rows, first: dict[int, int]) -> Span | None:
    events, lane = trace.events, int(trace.events.lane[rows[0]])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    codes = events.name_code[rows]
    is_engine = _is_engine(trace, rows)
    if not is_engine and len(distinct(codes)) < 2:
        return None
    every = 1 if is_engine else _cycle_of([first[code] for code in codes.tolist()])
    if every == 1 and not is_engine and any(_PARTS.search(trace.names[code]) for code in distinct(codes).tolist()):
        return None
    whole = rows[: len(rows) // every * every]
    starts, ends = events.start_ns[whole[::every]], events.ends_of(whole[every - 1 :: every])
    if not is_engine and not _are_alike(ends - starts):
        return None
    if not is_engine and len(starts) > 1 and are_layers(trace, tree, launches, lane, starts):
        return None
    last_ns = int(tree.end_ns[events.lane == lane].max())
    if is_engine:
        return _in_turns(starts, ends, last_ns, _when_done(trace, launches, starts))
    return _until_next(starts, ends, last_ns)


def engine_ranges(trace: Trace) -> Rows:
    """The ranges that an engine opens around its steps."""
    named = trace.where_name(lambda name: _ENGINES.match(name) is not None)
    return np.flatnonzero(named & (trace.events.category == Category.ANNOTATION))


def _is_engine(trace: Trace, rows: Rows) -> bool:
    return _ENGINES.match(trace.name_of(int(rows[0]))) is not None


def _are_alike(lengths_ns: Int64s) -> bool:
    """Whether ranges of about the same length make up most of their time: if one does, they are parts of one thing. A
    server's steps need not be alike."""
    usual = median(lengths_ns)
    return float(lengths_ns[lengths_ns <= _MOST_TIMES * usual].sum()) >= _COVERED_SHARE * float(lengths_ns.sum())


def _cycle_of(numbers: list[int]) -> int:
    """How many ranges make a step, if their numbers rise by one and begin anew at least once; else 1."""
    again = next((at for at in range(1, len(numbers)) if numbers[at] == numbers[0]), 0)
    if again < 2 or len(numbers) < _CYCLES * again:
        return 1
    cycle = [numbers[0] + at for at in range(again)]
    whole = numbers[: len(numbers) // again * again]
    return again if whole == cycle * (len(whole) // again) else 1


def _when_done(trace: Trace, launches: Launches, starts: Int64s) -> Int64s:
    """When the device is done with what each step launched; 0 if that is nothing."""
    number = np.searchsorted(starts, launches.launched_ns, side="right") - 1
    done_ns = np.zeros(len(starts), dtype=np.int64)
    np.maximum.at(done_ns, number[number >= 0], trace.events.ends_of(launches.work[number >= 0]))
    return done_ns


def in_turn(starts_ns: Int64s, done_ns: Int64s) -> Bools:
    """For each step but the first whether it follows the one before, which was ``done_ns``, at once: after a long pause
    the engine was without requests."""
    turns = np.diff(starts_ns)
    follow: Bools = starts_ns[1:] - done_ns[:-1] <= (_MOST_TIMES * median(turns) if len(turns) else 0.0)
    return follow


def _in_turns(starts: Int64s, ends: Int64s, last_ns: int, done_ns: Int64s) -> Span:
    """Each step until the next begins, unless the engine was without requests for a while. The last one takes as long
    as the others, as far as the recording reaches."""
    turns, follow = np.diff(starts), in_turn(starts, np.maximum(ends, done_ns))
    if not follow.any():
        return _until_next(starts, ends, last_ns)
    until = np.where(follow, starts[1:], ends[:-1])
    last = min(max(int(starts[-1] + median(turns[follow])), int(ends[-1])), max(last_ns, int(ends[-1])))
    return starts, np.append(until, last)


def _until_next(starts: Int64s, ends: Int64s, last_ns: int) -> Span:
    """Each step until the next begins, if they follow each other: what comes between two belongs to the loop. After a
    pause longer than a step, something else went on."""
    gaps = starts[1:] - ends[:-1]
    follow: Bools = gaps <= median(ends - starts)
    if not len(gaps) or not follow.any():
        return starts, ends
    longer = np.append(np.where(follow, gaps, 0), min(int(median(gaps[follow])), max(last_ns - int(ends[-1]), 0)))
    return starts, ends + longer
