"""Batches that the main process puts together of samples which it picks out of tensors one by one."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.input_bound import input_bound
from profkit.rules.per_sample_fetch import per_sample_fetch
from profkit.run.directory import CallSite, LoaderUse, Remark, Run
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import LOADER_MADE
from tests.traces import annotation, facts_of, mark, op, rows_named, step

Json = dict[str, Any]
SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def find(facts) -> list[Suspicion]:
    return list(per_sample_fetch.check(facts))


def request(
    picks: int = 64, stacks: int = 1, name: str = "aten::select", stacking: float = 40, duration: float = 400
) -> list[Json]:
    """A request of 400 µs that picks a sample each 5 µs and stacks them at its end: 40 µs, half of it copying."""
    chosen = [op(name, 5 * i, 2) for i in range(picks)]
    joined = [
        part
        for i in range(stacks)
        for part in (op("aten::stack", 325 + i, stacking), op("aten::cat", 325 + i, stacking / 2))
    ]
    return [annotation(SINGLE, 0, duration), *chosen, *joined]


def facts_about(*parts: list[Json], length: float = 1000, **more: Any):
    events = [op("aten::mm", length * i + 600, 300) for i in range(len(parts))]
    for i, part in enumerate(parts):
        events += [step(i, length * i, length), *({**event, "ts": event["ts"] + length * i} for event in part)]
    return facts_of(events, **more)


def test_the_time_of_the_copying_is_kept():
    facts = facts_about(*[request()] * 4)
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, SINGLE)
    assert found.evidence == {
        "picks_per_batch": 64,
        "fetching_ns_per_batch": 400_000,
        "stacking_ns_per_batch": 20_000,
    }
    assert predict_saving(facts, found.edit).fraction == 0.38


@pytest.mark.parametrize(("made", "known"), [(1, [20]), (3, [20, 21, 22]), (4, [])])
def test_the_lines_that_make_the_loaders_are_told_as_well(made: int, known: list[int]):
    remarks = tuple(Remark(LOADER_MADE, CallSite("train.py", 20 + i, "main")) for i in range(made))
    (found,) = find(facts_about(*[request()] * 4, run=Run(remarks=remarks)))
    assert [place.line for place in found.also] == known


def of(*sites: CallSite | None, made: int = 0, asked_ns: tuple[int, ...] = (0, 0)) -> Run:
    """A run whose recorded steps asked one loader for each of these lines, and whose source makes so many."""
    uses = tuple(LoaderUse(0, 8 + i, False, False, site, asked_ns[i]) for i, site in enumerate(sites))
    return Run(loaders=uses, remarks=tuple(Remark(LOADER_MADE, CallSite("t.py", 20 + i, "main")) for i in range(made)))


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (of(CallSite("t.py", 7, "main"), made=9), 7),  # the one that was asked
        (of(CallSite("t.py", 7, "main"), CallSite("t.py", 7, "main")), 7),  # two that one line makes
        (of(CallSite("t.py", 7, "main"), CallSite("t.py", 8, "main")), None),
        (of(CallSite("t.py", 7, "main"), CallSite("t.py", 8, "main"), asked_ns=(91, 9)), 7),  # nearly all of the time
        (of(CallSite("t.py", 7, "main"), CallSite("t.py", 8, "main"), asked_ns=(90, 10)), None),
        (of(CallSite("t.py", 7, "main"), None), None),
        (of(None, made=1), 20),  # made before the recording: the only one that the source shows
        (of(None, made=2), None),
        (of(None, None, made=1), None),
    ],
)
def test_the_line_that_makes_the_loader_is_told_where_there_is_no_doubt_which(run: Run, line: int | None):
    (found,) = find(facts_about(*[request()] * 4, run=run))
    assert (found.location.line if found.location else None) == line
    assert found.location not in found.also


@pytest.mark.parametrize(("site", "known"), [(CallSite("t.py", 20, "main"), []), (None, [20, 21])])
def test_where_it_is_known_who_makes_the_loader_lines_that_make_others_are_not_told(site: CallSite | None, known):
    (found,) = find(facts_about(*[request()] * 4, run=of(site, made=2)))
    assert [place.line for place in found.also] == known


@pytest.mark.parametrize("name", ["aten::index", "aten::index_select", "aten::slice", "aten::narrow"])
def test_other_ways_to_pick_count(name):
    assert len(find(facts_about(*[request(name=name)] * 4))) == 1


@pytest.mark.parametrize(("picks", "reported"), [(64, 1), (63, 0)])
def test_64_picks_are_the_least(picks, reported):
    assert len(find(facts_about(*[request(picks)] * 4))) == reported


def held_up(length: float, *places: int) -> list[list[Json]]:
    """Requests in which so much time passes before one of the picks, in each before another one."""
    parts = []
    for place in places:
        late = [{**one, "ts": one["ts"] + length * (one["ts"] >= 5 * place)} for one in request()[1:]]
        parts.append([annotation(SINGLE, 0, 400 + length), *late])
    return parts


def test_a_wait_for_the_processor_is_no_work_of_the_request():
    assert len(find(facts_about(*held_up(5000, 3, 20, 41, 60), length=10_000))) == 1
    assert find(facts_about(*held_up(5000, 20, 20, 20, 20), length=10_000)) == []  # Python works there in each
    assert find(facts_about(*held_up(5000, 3, 20), length=10_000)) == []  # two do not tell


def test_requests_of_different_lengths_are_judged_by_themselves():
    parts = [request(64), request(65), *held_up(5000, 3)]
    assert len(find(facts_about(request(64), request(65), request(66), length=10_000))) == 1
    assert find(facts_about(*held_up(5000, 3), request(63), length=10_000)) == []
    assert len(find(facts_about(*parts, request(65), length=10_000))) == 1


def made(picked: list[int], *others: Json, name: str = "aten::select") -> list[Json]:
    """A request of 600 µs for 64 samples, each from a pick out of a tensor of the shape ``picked``, after which come
    ``others``."""
    events = [annotation(SINGLE, 0, 600)]
    for i in range(64):
        events += [op(name, 8 * i, 1, dims=[picked, [], []])]
        events += [{**other, "ts": 8 * i + 1 + 2 * j} for j, other in enumerate(others)]
    return [*events, op("aten::stack", 540, 40), op("aten::cat", 540, 10)]


def fresh(*shapes: list[int]) -> list[Json]:
    """Tensors that are made of Python's objects."""
    return [op("aten::lift_fresh", 0, 2, dims=[shape]) for shape in shapes]


@pytest.mark.usefixtures("cheap_handing_over")
def test_samples_that_python_makes_of_a_picked_number_are_left_to_input_bound():
    """A task and its solution, of six digits each: one number of each sample was picked, and twelve were made."""
    digits = facts_about(*[made([9500], *fresh([6], [6]))] * 4, length=2000)
    assert find(digits) == []
    assert len(list(input_bound.check(digits))) == 1
    rows = facts_about(*[made([9500, 6], *fresh([6], [6]))] * 4, length=2000)
    assert len(find(rows)) == 1
    assert list(input_bound.check(rows)) == []


@pytest.mark.parametrize(("length", "reported"), [(7, 0), (63, 0), (64, 1), (100_000, 1)])
def test_stretches_of_a_sample_that_was_made_are_none_of_a_data_set(length, reported):
    stretch = made([length], op("aten::clone", 0, 3), name="aten::slice")
    assert len(find(facts_about(*[stretch] * 4, length=2000))) == reported


def test_what_is_done_to_each_sample_moves_along_and_keeps_its_time():
    """600 µs less 64 divisions and subtractions of 1 µs beyond a call, which is 1 µs here, less the copying of 10."""
    work = [op("aten::div", 0, 2), op("aten::sub", 0, 2), op("aten::view", 0, 1)]
    facts = facts_about(*[made([9500, 6], *work)] * 4, length=2000)
    (found,) = find(facts)
    assert "each sample goes through (`div`, `sub`) to the whole batch" in found.fix
    assert found.kind is None
    (plain,) = find(facts_about(*[made([9500, 6], *fresh([6]))] * 4, length=2000))
    assert "moves along" not in plain.fix
    kept = 600_000 - predict_saving(facts, found.edit).time_ns_per_step
    assert kept == 10_000 + 64 * 2 * 1000


def test_samples_that_draw_numbers_of_their_own_are_an_opportunity():
    (found,) = find(facts_about(*[made([9500, 6], op("aten::rand", 0, 3), op("aten::mul", 0, 3))] * 4, length=2000))
    assert found.kind is Kind.OPPORTUNITY


def test_what_an_operator_does_inside_is_no_pick():
    inside = [
        annotation(SINGLE, 0, 400),
        op("aten::roll", 0, 330),
        *(op("aten::select", 5 * i, 2) for i in range(64)),
        op("aten::stack", 340, 40),
    ]
    assert find(facts_about(*[inside] * 4)) == []


@pytest.mark.parametrize(("transform_us", "reported"), [(69, 1), (71, 0)])
@pytest.mark.usefixtures("cheap_handing_over")
def test_samples_that_operators_make_are_left_to_input_bound(transform_us, reported):
    """64 transforms, of which 20 µs each are the call, in a request of 6400 µs."""
    parts = [op("aten::select", 1000 + 99 * i, 4) for i in range(64)]
    parts += [op("aten::stft", 1005 + 99 * i, transform_us) for i in range(64)]
    made_here = [annotation(SINGLE, 1000, 6400), *parts, op("aten::stack", 7380, 10), op("aten::cat", 7381, 5)]
    facts = facts_about(*[made_here] * 4, length=20_000)
    assert len(find(facts)) == reported
    assert len(list(input_bound.check(facts))) == 1 - reported


def test_picks_that_are_not_stacked_are_silent():
    assert find(facts_about(*[request(stacks=0)] * 4)) == []


@pytest.mark.parametrize(("duration", "reported"), [(544, 1), (545, 0)])
@pytest.mark.usefixtures("cheap_handing_over")
def test_samples_that_are_mostly_made_in_python_are_left_to_input_bound(duration, reported):
    """64 picks of 2 µs and a stack of 8 are 136 µs of operators."""
    facts = facts_about(*[request(duration=duration, stacking=8)] * 4, length=5000)
    assert len(find(facts)) == reported
    assert len(list(input_bound.check(facts))) == 1 - reported


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_steps_are_the_least(steps, reported):
    assert len(find(facts_about(*[request()] * steps, *[request(0, 0)] * (4 - steps)))) == reported


@pytest.mark.parametrize(("length", "reported"), [(12_666, 1), (12_667, 0)])
def test_three_percent_are_the_least(length, reported):
    """380 µs of a step."""
    assert len(find(facts_about(*[request()] * 4, length=length))) == reported


def test_the_line_is_that_of_the_loop():
    located = [mark(3, 0, 401), *request()]
    facts = facts_about(located, *[request()] * 4)
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {3}


def test_picking_outside_a_loader_is_silent_and_without_a_loader_it_cannot_look():
    assert find(facts_about(*[[annotation(SINGLE, 500, 50), *request()[1:]]] * 4)) == []
    with pytest.raises(CannotLook, match="no DataLoader"):
        find(facts_about(*[request()[1:]] * 4))
