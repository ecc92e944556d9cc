"""Steps that are the rounds of a loop over samples: the model is called on one of them in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import operators_of
from profkit.patterns.loops.independent_rounds import head_of, rounds_are_independent
from profkit.patterns.loops.located import body_and_called, in_located_step, lines_outwards, located_marks, marks_around
from profkit.patterns.places.events import call_site
from profkit.patterns.program import program_operators
from profkit.patterns.shapes import Shapes, by_shapes, with_shapes
from profkit.run.directory import CallSite
from profkit.trace.events import Bools, Rows
from profkit.trace.statistics import distinct

_FORWARD, _LOADER = "forward", "dataloader"
"""Of the run's steps: calls of the model end them, or requests for a batch."""
_LEAST_STEPS = 3
"""Of samples of different sizes two may be alike by chance."""
_TAKES: Mapping[str, int] = {"embedding": 1, "linear": 0, "conv1d": 0, "conv2d": 0, "conv3d": 0}
"""The place among an operator's inputs of the one whose first dimension counts samples."""


class SampleLoop(Struct, frozen=True):
    """The loop's ``head``, its line that calls the model, the operators of the measured steps, and whether a DataLoader
    gives the samples."""

    head: CallSite
    call: CallSite
    rows: Rows
    has_loader: bool = False


@derived_once
def sample_loop(facts: Facts) -> SampleLoop | None:
    """None unless each step calls the model once, on one sample, trains nothing, and the lines of the loop show that no
    round needs another's result. A DataLoader that gives single samples may do so because they differ in size; so they
    have to be of one size."""
    run, marks, rows = facts.run, located_marks(facts), program_operators(facts)
    trains = facts.updates.rows.size or facts.lines.backward.any()
    by_loader = run.step_signal == _LOADER and all(loader.batch_size == 1 for loader in run.loaders)
    by_model = run.step_signal == _FORWARD and not run.loaders
    if not (by_loader or by_model) or run.signals_per_step != 1 or trains or not marks.size:
        return None
    if by_loader and not _are_of_one_size(facts, rows):
        return None
    located = in_located_step(facts, np.flatnonzero(facts.tree.outermost(facts.trace.mask_of(facts.operators.rows))))
    if not (_take_one_sample(facts, rows) and located.size):
        return None
    around = marks_around(facts)[marks]
    for parent in distinct(around).tolist():
        inside = marks if parent < 0 else marks[_below(facts, parent)[marks]]
        body, called = body_and_called(facts, inside, int(marks[around == parent][0]))
        head = head_of(body)
        call = _line_around(facts, located, body)
        if call is not None and call != head and rounds_are_independent(body, called):
            return SampleLoop(head, call, rows, by_loader)
    return None


def _are_of_one_size(facts: Facts, rows: Rows) -> bool:
    """Whether each of several steps calls the same operators, with results as large as in the others."""
    steps = facts.step_of(rows)
    bounds = np.flatnonzero(np.diff(steps)) + 1
    calls = np.stack([facts.trace.events.name_code[rows], facts.allocated_bytes[rows]], axis=1)
    parts = np.split(calls, bounds)
    known = facts.memory.present and len(parts) >= _LEAST_STEPS
    return known and all(np.array_equal(part, parts[0]) for part in parts[1:])


def _below(facts: Facts, mark: int) -> Bools:
    """The events below a line's mark, without it."""
    below = facts.tree.under(facts.trace.mask_of(np.array([mark])))
    below[mark] = False
    return below


def _line_around(facts: Facts, rows: Rows, body: list[CallSite]) -> CallSite | None:
    """The line of a loop's body under which most of these operators run."""
    counts = Counter[CallSite]()
    for code, places, _ in lines_outwards(facts, rows):
        if (site := call_site(facts, code)) in body and site is not None:
            counts[site] += len(places)
    return counts.most_common(1)[0][0] if counts else None


def _take_one_sample(facts: Facts, rows: Rows) -> bool:
    """Whether all layers take one sample, and there are some."""
    seen = False
    for name, place in _TAKES.items():
        layers = with_shapes(facts, rows[operators_of(facts.trace, frozenset((name,)))[rows]])
        if not layers.size:
            continue
        first = by_shapes(facts, layers[layers >= 0], partial(_first_dimension, place), of=int)
        if (layers < 0).any() or (first != 1).any():
            return False
        seen = True
    return seen


def _first_dimension(place: int, shapes: Shapes) -> int:
    """Of the input at this place; 0 if it has no other."""
    shape = shapes[place] if len(shapes) > place else ()
    return shape[0] if len(shape) > 1 else 0
