"""Tensors made of lists number by number, and other ways to come by a tensor."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.slow_tensor_construction import slow_tensor_construction
from profkit.rules.unattributed_time import unattributed_time
from profkit.run.directory import CallSite, Rates, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, rows_named, stacks_of, step

Json = dict[str, Any]
SHAPE = [64, 32]


def find(facts) -> list[Suspicion]:
    return list(slow_tensor_construction.check(facts))


def construct(at: float, shape: list[int] = SHAPE, asked: list[int] | None = None, take: float = 40) -> list[Json]:
    """`torch.tensor(list)`: ``take`` µs pass between the empty tensor and the rest."""
    return [
        op("aten::empty", at, 2, dims=[[], []], types=["ScalarList", "Scalar"], concrete=[str(asked or shape), "6"]),
        op("aten::to", at + 2 + take, 1, dims=[shape, []], types=["float", "Scalar"]),
        op("aten::lift_fresh", at + 4 + take, 1, dims=[shape], types=["float"]),
        op("aten::detach_", at + 6 + take, 1, dims=[shape], types=["float"]),
    ]


def recording(events: list[Json], steps: int = 4, run: Run | None = None) -> Any:
    moved = [{**event, "ts": event["ts"] + 200 * i} for i in range(steps) for event in events]
    return facts_of([*(step(i, 200 * i, 200) for i in range(steps)), *moved], run=run)


def test_of_a_nested_list_the_middle_between_arrays_and_numbers_is_kept():
    """64 arrays for 1.5 numbers each of 40 µs / 2048, their 8 KiB at 9.6 GB/s; numbers for 0.15 of 40 µs."""
    facts = recording(construct(10))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")
    assert found.evidence == {"elements_per_step": 2048, "ns_per_element": round(40_000 / 2048)}
    kept_us = (64 * 1.5 * 40 / 2048 + 8192 / 9.6e3 + 0.15 * 40) / 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx((40 - kept_us) / 200, abs=1e-4)


def test_of_a_flat_list_it_is_what_numbers_take():
    facts = recording(construct(10, [2048]))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.85 * 40 / 200, abs=1e-4)


def test_of_arrays_of_two_numbers_at_most_three_tenths_are_kept():
    facts = recording(construct(10, [1024, 2]))
    kept_us = (0.3 * 40 + 8192 / 9.6e3 + 0.15 * 40) / 2
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((40 - kept_us) / 200, abs=1e-4)


def test_the_bytes_move_at_the_bandwidth_that_was_measured():
    """4 GB/s read and written are 2 GB/s copied: 8 KiB take 4.1 µs, of which the middle counts half."""
    facts = recording(construct(10), run=Run(device="cpu", rates=Rates("cpu", 4e9, {})))
    kept_us = (64 * 1.5 * 40 / 2048 + 8192 / 2e3 + 0.15 * 40) / 2
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((40 - kept_us) / 200, abs=1e-4)


def test_a_copy_that_would_take_longer_than_the_list_saves_nothing():
    facts = recording(construct(10, take=1), run=Run(device="cpu", rates=Rates("cpu", 4e6, {})))
    assert predict_saving(facts, find(facts)[0].edit).fraction == 0.0


@pytest.mark.parametrize(("shape", "reported"), [([32, 32], 1), ([1023], 0)])
def test_1024_numbers_are_the_least(shape, reported):
    assert len(find(recording(construct(10, shape)))) == reported


def test_an_empty_tensor_of_another_shape_is_another_tensor():
    assert find(recording(construct(10, asked=[32, 64]))) == []


def test_a_list_of_tensors_asks_each_for_its_number_and_is_silent():
    item = op("aten::item", 20, 3, dims=[[1]], types=["float"])
    assert find(recording([*construct(10), item])) == []


def test_an_array_is_copied_as_a_whole_and_is_silent():
    events = [
        op("aten::lift_fresh", 10, 1, dims=[SHAPE], types=["float"]),
        op("aten::to", 12, 30, dims=[SHAPE, []], types=["float", "Scalar"]),
    ]
    assert find(recording(events)) == []


def test_an_empty_tensor_that_is_moved_and_not_made_of_data_is_silent():
    empty, moved, *_ = construct(10)
    assert find(recording([empty, moved])) == []


def test_what_the_main_process_does_to_make_a_batch_counts():
    loading = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 90)
    assert len(find(recording([loading, *construct(10)]))) == 1


@pytest.mark.parametrize(("times", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_steps_are_the_least(times, reported):
    steps = [step(i, 200 * i, 200) for i in range(4)]
    events = [{**event, "ts": event["ts"] + 200 * i} for i in range(times) for event in construct(10)]
    rest = [op("aten::relu", 200 * i + 150, 9, dims=[[4]], types=["float"]) for i in range(4)]
    assert len(find(facts_of([*steps, *events, *rest]))) == reported


def test_each_line_is_a_finding():
    sites = tuple(CallSite("act.py", line, "act") for line in (10, 20))
    both = [*construct(10), *construct(110)]
    first = [step(0, 0, 200), mark(0, 5, 80), mark(1, 105, 80), *both]
    later = [{**event, "ts": event["ts"] + 200 * i} for i in (1, 2) for event in both]
    facts = facts_of([*first, step(1, 200, 200), step(2, 400, 200), *later], callsites=sites)
    assert sorted(facts.callsites[facts.lines.site[found.rows[0]]].line for found in find(facts)) == [10, 20]


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::to", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, slow_tensor_construction.needs)


def sampled(source: str, share: float) -> Any:
    """Steps of 200 µs of which reading a list takes 40 in the recording, and ``share`` of plain steps, by samples."""
    site = CallSite("train.py", 5, "train", source)
    calls = construct(10)
    events = [
        event
        for i in range(4)
        for event in (
            step(i, 200 * i, 200),
            *([mark(0, 5 + 200 * i, 60)] if i == 3 else []),
            *({**one, "ts": one["ts"] + 200 * i} for one in calls),
        )
    ]
    hot = round(100 * share)
    stacks = stacks_of((site, CallSite("train.py", 9, "train", "loss.backward()")), {(0,): hot, (1,): 100 - hot})
    return facts_of(events, run=Run(torch="2.13"), callsites=(site,), stacks=stacks)


@pytest.mark.parametrize(
    ("source", "share", "is_by_samples"),
    [
        ("x = torch.tensor(rows)", 0.6, True),
        ("x = torch.tensor(rows, dtype=torch.float32).to(device)", 0.6, True),
        ("x = torch.tensor(rows)", 0.2, False),
        ("x = torch.tensor([f(row) for row in rows])", 0.6, False),
        ("x = torch.tensor(load(rows))", 0.6, False),
    ],
)
def test_samples_tell_what_a_line_takes_that_does_nothing_else(source: str, share: float, is_by_samples: bool):
    """PyTorch looks for the shape and the type before it makes the empty tensor."""
    facts = sampled(source, share)
    (found,) = find(facts)
    saved = predict_saving(facts, found.edit).fraction
    assert (saved > 0.4) is is_by_samples
    assert saved > 0.1


@pytest.mark.parametrize(
    ("source", "is_told"), [("x = torch.tensor(rows)", True), ("x = torch.tensor(f(rows))", False)]
)
def test_what_samples_tell_here_is_not_told_as_other_time(source: str, is_told: bool):
    facts = sampled(source, 0.6)
    named = [one.places.location.line for one in unattributed_time.check(facts) if one.places.location is not None]
    assert (5 not in named) is is_told
