"""Selections by a mask that cost more than a masked pass over all elements, and selections that save work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.data_dependent_shape import data_dependent_shape
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, memory, op, rows_named, runtime, step

Json = dict[str, Any]
ELEMENTS = 1 << 16
PASS_US = 10.0
"""The time in which `sub` reads two tensors of ``ELEMENTS`` floats and writes one: 12 bytes an element."""
WHERE_US = PASS_US * (2 * 4 + 1) / 12
CALL_US = 1.0


def find(facts) -> list[Suspicion]:
    return list(data_dependent_shape.check(facts))


def sub(at: float, elements: int = ELEMENTS) -> Json:
    return op("aten::sub", at, PASS_US, dims=[[elements], [elements], []], types=["float", "float", "Scalar"])


def call(at: float) -> Json:
    """The cheapest operator of the step."""
    return op("aten::detach", at, CALL_US, dims=[[4]], types=["float"])


def selection(
    at: float,
    picked: int,
    *,
    elements: int = ELEMENTS,
    duration: float = 40,
    sequence: int | None = None,
    shapes: bool = True,
) -> list[Json]:
    """`x[mask]`: indices are allocated and freed again, and the result is freed 30 µs after the call."""
    dims, types = ([[elements], [[elements]]], ["float", "TensorList"]) if shapes else (None, None)
    return [
        op("aten::index", at, duration, dims=dims, types=types, sequence=sequence),
        op("aten::nonzero", at + 1, duration - 1),
        memory(at + 2, 8 * picked, 1),
        memory(at + 20, 4 * picked, 2),
        memory(at + 30, -8 * picked, 1),
        memory(at + duration + 30, -4 * picked, 2),
    ]


def taker(at: float, picked: int, name: str = "aten::mean", duration: float = 5) -> Json:
    return op(name, at, duration, dims=[[picked], []], types=["float", ""])


def masked_mean(at: float, picked: int = ELEMENTS // 2) -> list[Json]:
    return [sub(at), *selection(at + 12, picked), taker(at + 55, picked), call(at + 65)]


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_a_masked_pass_replaces_the_selection_and_later_operators_take_longer():
    facts = facts_of(steps_of(masked_mean))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::index")
    assert found.evidence == {"masked_bytes_per_step": 4 * ELEMENTS, "picked_share": 0.5}
    kept = WHERE_US + CALL_US + (2 - 1) * (5 - CALL_US)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((40 - kept) / 100, abs=1e-3)


def test_a_masked_pass_replaces_the_backward_pass_of_the_selection_too():
    def part(at: float) -> list[Json]:
        picked, number = ELEMENTS // 2, int(at)
        events = [sub(at), *selection(at + 12, picked, sequence=number), taker(at + 55, picked), call(at + 65)]
        return [*events, op("autograd::engine::evaluate_function: IndexBackward0", at + 70, 60, sequence=number)]

    facts = facts_of(steps_of(part, 200))
    kept = 2 * (WHERE_US + CALL_US) + (5 - CALL_US)
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((40 + 60 - kept) / 200, abs=1e-3)


def test_a_selection_that_makes_a_matrix_product_much_smaller_is_silent():
    def part(at: float) -> list[Json]:
        picked = ELEMENTS // 8
        product = op("aten::linear", at + 55, 20, dims=[[picked // 64, 64], [1000, 64]], types=["float", "float"])
        return [sub(at), *selection(at + 12, picked), product, call(at + 80)]

    assert find(facts_of(steps_of(part))) == []


def test_a_selection_before_a_cheap_product_is_an_opportunity():
    def part(at: float) -> list[Json]:
        picked = ELEMENTS // 2
        product = op("aten::linear", at + 55, 8, dims=[[picked // 64, 64], [2, 64]], types=["float", "float"])
        return [sub(at), *selection(at + 12, picked), product, call(at + 80)]

    (found,) = find(facts_of(steps_of(part)))
    assert found.kind is Kind.OPPORTUNITY


@pytest.mark.parametrize(("more_rows", "reported"), [(0, 0), (1, 1)])
def test_operators_on_as_many_rows_as_were_picked_take_longer_too(more_rows, reported):
    """After `x[mask]` and a product, the scores have other columns but still one row for each picked row."""

    def part(at: float) -> list[Json]:
        rows, picked = ELEMENTS // 64, ELEMENTS // 8
        _, *inside = selection(at + 12, picked)
        index = op("aten::index", at + 12, 40, dims=[[rows, 64], [[rows]]], types=["float", "TensorList"])
        scores = op("aten::softmax", at + 55, 20, dims=[[picked // 64 + more_rows, 1000]], types=["float"])
        return [sub(at), index, *inside, scores, call(at + 80)]

    assert len(find(facts_of(steps_of(part)))) == reported


@pytest.mark.parametrize(("elements", "reported"), [(1 << 14, 1), ((1 << 14) - 1, 0)])
def test_selections_from_less_than_64_kibibytes_are_silent(elements, reported):
    def part(at: float) -> list[Json]:
        return [sub(at), *selection(at + 12, elements // 2, elements=elements), call(at + 65)]

    assert len(find(facts_of(steps_of(part)))) == reported


def test_selections_by_integer_indices_are_silent():
    def part(at: float) -> list[Json]:
        return [event for event in masked_mean(at) if event["name"] != "aten::nonzero"]

    assert find(facts_of(steps_of(part))) == []


def test_without_a_gpu_a_lone_nonzero_is_silent():
    """Nothing waits, and there is no selection that could be masked instead."""

    def part(at: float) -> list[Json]:
        return [sub(at), op("aten::nonzero", at + 12, 40, dims=[[ELEMENTS]], types=["bool"]), call(at + 65)]

    assert find(facts_of(steps_of(part))) == []


def test_masked_select_is_reported():
    def part(at: float) -> list[Json]:
        picked = ELEMENTS // 2
        chosen = op("aten::masked_select", at + 12, 40, dims=[[ELEMENTS], [ELEMENTS]], types=["float", "bool"])
        return [sub(at), chosen, memory(at + 20, 4 * picked, 2), call(at + 65), memory(at + 80, -4 * picked, 2)]

    assert len(find(facts_of(steps_of(part)))) == 1


def test_shapes_come_from_the_located_step_when_each_step_picks_another_number():
    sites = (CallSite("train.py", 9, "train"),)
    first = [step(0, 0, 100), mark(0, 5, 60), *masked_mean(0)]
    later = []
    for i, picked in enumerate((ELEMENTS // 4, ELEMENTS // 2, 3 * ELEMENTS // 4)):
        at = 1000 + 100 * i
        events = [sub(at), *selection(at + 12, picked, shapes=False), taker(at + 55, picked), call(at + 65)]
        events[-2]["args"].pop("Input Dims")
        later += [step(i + 2, at, 100), *events]
    (found,) = find(facts_of([*first, *later], callsites=sites))
    assert found.evidence == {"masked_bytes_per_step": 4 * ELEMENTS, "picked_share": 0.5}


def test_without_memory_events_it_cannot_look():
    events = [event for event in steps_of(masked_mean) if event["name"] != "[memory]"]
    with pytest.raises(CannotLook, match="memory"):
        find(facts_of(events))


def test_without_shapes_it_cannot_look():
    events = steps_of(masked_mean)
    for event in events:
        event["args"].pop("Input Dims", None)
    with pytest.raises(CannotLook, match="shapes"):
        find(facts_of(events))


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_selections_in_fewer_than_half_of_the_steps_are_silent(steps, reported):
    def part(at: float) -> list[Json]:
        return masked_mean(at) if at < 100 * steps else [sub(at), call(at + 65)]

    assert len(find(facts_of(steps_of(part)))) == reported


def on_a_device(busy: float, name: str = "aten::nonzero", rounds: int = 1) -> list[Json]:
    """A kernel of ``busy`` microseconds is queued when the host asks for the count, and 40 µs of work follow."""

    def part(at: float) -> list[Json]:
        number = 2 * int(at) // 200 * 2 + 1
        return [
            op("aten::mm", at, 10),
            runtime("cudaLaunchKernel", at + 2, 2, correlation=number),
            kernel("gemm", at + 5, busy, correlation=number),
            op(name, at + 12, busy),
            runtime("cudaStreamSynchronize", at + 14, busy - 7),
            op("aten::mul", at + busy + 20, 40),
            runtime("cudaLaunchKernel", at + busy + 58, 2, correlation=number + 1),
            kernel("mul", at + busy + 60, 40, correlation=number + 1),
        ]

    return steps_of(lambda at: [event for one in range(rounds) for event in part(at + 200 * one)], 200 * rounds)


@pytest.mark.parametrize(("rounds", "are_groups"), [(1, False), (3, False), (4, True)])
def test_a_loop_over_groups_is_told_to_sort_once(rounds, are_groups):
    (found,) = find(facts_of(on_a_device(80, rounds=rounds)))
    assert found.evidence == {"waits_per_step": rounds}
    assert ("sort them all once" in found.fix) == are_groups


@pytest.mark.parametrize("name", ["aten::nonzero", "aten::masked_select", "aten::_unique2"])
def test_on_a_gpu_the_selection_costs_its_wait(name):
    facts = facts_of(on_a_device(80, name))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, name)
    assert found.evidence == {"waits_per_step": 1.0}
    assert found.edit.waits.tolist() == rows_named(facts.trace, "cudaStreamSynchronize")


def test_on_a_gpu_waits_of_other_operators_are_silent():
    assert find(facts_of(on_a_device(80, "aten::item"))) == []


@pytest.mark.parametrize(("taking", "reported"), [(30, 1), (70, 0)])
def test_on_a_gpu_a_selection_is_silent_when_longer_kernels_outweigh_its_wait(taking, reported):
    """Without the wait the step would be 60 µs shorter. On twice as many elements a kernel takes twice as long."""
    picked = ELEMENTS // 2

    def part(at: float) -> list[Json]:
        number = int(at) // 200 * 2 + 1
        return [
            op("aten::sub", at, 10, dims=[[ELEMENTS], [ELEMENTS], []], types=["float", "float", "Scalar"]),
            runtime("cudaLaunchKernel", at + 2, 2, correlation=number),
            kernel("sub", at + 5, 80, correlation=number),
            *selection(at + 12, picked, duration=75),
            runtime("cudaStreamSynchronize", at + 14, 72),
            taker(at + 90, picked, "aten::exp"),
            runtime("cudaLaunchKernel", at + 92, 1, correlation=number + 1),
            kernel("exp", at + 95, taking, correlation=number + 1),
            op("aten::mm", at + 100, 90),
        ]

    assert len(find(facts_of(steps_of(part, 200)))) == reported


def host_bound(at: float, select: bool) -> list[Json]:
    """The device is mostly idle. The host searches the mask for about 30 µs, of which it waits 2."""
    number = int(at) // 200 * 2 + 1
    shapes = {"dims": [[ELEMENTS]], "types": ["bool"]}
    search = selection(at + 12, ELEMENTS // 2, duration=35) if select else [op("aten::nonzero", at + 13, 33, **shapes)]
    return [
        op("aten::sub", at, 10, dims=[[ELEMENTS], [ELEMENTS], []], types=["float", "float", "Scalar"]),
        runtime("cudaLaunchKernel", at + 2, 2, correlation=number),
        kernel("sub", at + 5, 10, correlation=number),
        *search,
        runtime("cudaStreamSynchronize", at + 20, 2),
        taker(at + 90, ELEMENTS // 2, "aten::exp"),
        runtime("cudaLaunchKernel", at + 92, 1, correlation=number + 1),
        kernel("exp", at + 95, 70, correlation=number + 1),
        op("aten::mm", at + 100, 90),
    ]


def test_on_an_idle_gpu_the_search_and_its_wait_are_saved_at_no_cost_for_larger_tensors():
    facts = facts_of(steps_of(lambda at: host_bound(at, select=True), 200))
    (found,) = find(facts)
    searches = rows_named(facts.trace, "aten::nonzero")
    assert found.edit.rows.tolist() == searches
    searching_ns = facts.trace.events.duration_ns[searches[0]]
    assert predict_saving(facts, found.edit).fraction == pytest.approx(searching_ns / 200_000)


def test_on_a_gpu_only_the_wait_of_a_nonzero_called_by_the_program_is_saved():
    facts = facts_of(steps_of(lambda at: host_bound(at, select=False), 200))
    (found,) = find(facts)
    assert found.edit.rows.size == 0
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("x = self.conv1(x, edge_index)", True),
        ("loss = error[valid].mean()", False),
        ("picked = torch.masked_select(x, mask)", False),
    ],
)
def test_a_selection_made_by_a_library_is_an_opportunity(source, inside):
    name = "aten::masked_select" if "masked_select" in source else "aten::index"

    def part(at: float) -> list[Json]:
        return [{**event, "name": name} if event["name"] == "aten::index" else event for event in masked_mean(at)]

    traced = [step(9, 0, 100), mark(0, 0, 95), *part(0)]
    later = [event for i in range(1, 5) for event in (step(i, 100 * i, 100), *part(100 * i))]
    (found,) = find(facts_of([*traced, *later], callsites=(CallSite("net.py", 3, "forward", source),)))
    assert found.fix.startswith("The selection is not on this line") == inside
    assert found.kind is (Kind.OPPORTUNITY if inside else Kind.FAULT)
