"""Tensors that are made on the host and then sent to the device, and copies that only look like it."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Change
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.host_created_tensor import host_created_tensor
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, memcpy, op, rows_named, runtime, step

Json = dict[str, Any]
FLOATS = '["float"]'


def find(facts) -> list[Suspicion]:
    return list(host_created_tensor.check(facts))


def made(
    start: float, factory: str = "aten::rand", fill: str = "aten::uniform_", dims: str = "[[100]]", types: str = FLOATS
) -> list[Json]:
    """A factory on the host that takes 20 µs."""
    return [op(factory, start, 20), op("aten::empty", start + 1, 2), op(fill, start + 4, 15, dims=dims, types=types)]


def sent(
    start: float, dims: str = "[[100]]", types: str = FLOATS, direction: str = "HtoD (Pageable -> Device)"
) -> list[Json]:
    """``x.to(device)``, which takes the host 30 µs: a copy of 10 µs and the wait for it."""
    return [
        op("aten::to", start, 30, dims=dims, types=types),
        op("aten::_to_copy", start + 1, 28, dims=dims, types=types),
        op("aten::copy_", start + 3, 25, dims=dims, types=types),
        runtime("cudaMemcpyAsync", start + 5, 3, correlation=1),
        memcpy(f"Memcpy {direction}", start + 9, 10, correlation=1, size_bytes=400),
        runtime("cudaStreamSynchronize", start + 9, 12, correlation=2),
    ]


def used(start: float) -> list[Json]:
    """A kernel on the device: 5 µs."""
    return [
        op("aten::mul", start, 8),
        runtime("cudaLaunchKernel", start + 1, 3, correlation=3),
        kernel("mul", start + 6, 5, correlation=3),
    ]


def stepped(*parts: list[Json], steps: int = 4, first: int = 0) -> list[Json]:
    events = []
    for i in range(first, first + steps):
        events.append(step(i, 100 * i, 100))
        for event in (event for part in parts for event in part):
            moved = {**event, "ts": event["ts"] + 100 * i, "args": dict(event["args"])}
            if "correlation" in moved["args"]:
                moved["args"]["correlation"] += 10 * i
            events.append(moved)
    return events


def test_random_numbers_drawn_on_the_host_cost_the_factory_the_call_and_the_copy():
    facts = facts_of(stepped(made(10), sent(30), used(62)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::to")
    assert found.evidence == {"host_ns_per_step": 50_000, "bytes_per_step": 400}
    assert "rand" in found.message
    assert "`torch.rand(..., device=device)`" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.5, abs=0.005)


def test_the_line_is_that_of_the_copy():
    lines = [mark(2, 9, 21), *made(10), mark(3, 30, 31), *sent(30.5), *used(62)]
    facts = facts_of([*stepped(lines, steps=1), *stepped(made(10), sent(30.5), used(62), first=1)])
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {3}


def test_an_empty_tensor_filled_in_place_is_made_on_the_host():
    fill = [op("aten::empty", 10, 2), op("aten::normal_", 13, 15, dims="[[100]]", types=FLOATS)]
    (found,) = find(facts_of(stepped(fill, sent(30), used(62))))
    assert "`torch.empty(..., device=device).normal_(...)`" in found.fix


def test_a_mask_that_is_cut_and_reshaped_before_the_copy_counts():
    mask = made(10, "aten::ones", "aten::fill_", dims="[[10,10]]")
    shaped = [op("aten::tril", 31, 2, dims="[[10,10]]"), op("aten::unsqueeze", 34, 1, dims="[[10,10]]")]
    facts = facts_of(stepped(mask, shaped, sent(36, dims="[[1,10,10]]"), used(70)))
    (found,) = find(facts)
    assert set(rows_named(facts.trace, "aten::tril")) < set(found.edit.rows)


def test_a_factory_without_recorded_shapes_counts():
    bare = [op("aten::arange", 10, 15), op("aten::empty", 11, 2), op("aten::arange", 14, 8)]
    assert len(find(facts_of(stepped(bare, sent(30, dims="[]"), used(62))))) == 1


@pytest.mark.parametrize(
    "parts",
    [
        [sent(30), used(62)],
        [[op("aten::lift_fresh", 10, 2), op("aten::detach_", 13, 2)], sent(30), used(62)],
        [[op("aten::empty", 10, 2)], sent(30), used(62)],
        [made(10), [op("aten::stack", 30, 2)], sent(34), used(66)],
        [made(10, dims="[[99]]"), sent(30), used(62)],
        [made(10, types='["double"]'), sent(30), used(62)],
        [made(10), sent(30, direction="DtoH (Device -> Pageable)"), used(62)],
        [made(10, "aten::add", "aten::add"), sent(30), used(62)],
        [[op("aten::empty", 10, 2), op("aten::cat", 13, 15, dims="[[100]]", types=FLOATS)], sent(30), used(62)],
        [[op("aten::select", 10, 2), op("aten::fill_", 13, 15, dims="[[100]]", types=FLOATS)], sent(30), used(62)],
    ],
    ids=[
        "real data",
        "data of Python's",
        "nothing filled",
        "other work between",
        "other elements",
        "another type",
        "to the host",
        "computed on the host",
        "computed into a new tensor",
        "a tensor that was there before",
    ],
)
def test_copies_of_what_the_host_did_not_make_up_are_silent(parts):
    assert find(facts_of(stepped(*parts))) == []


def test_a_tensor_made_on_the_device_before_real_data_is_copied_is_silent():
    on_device = [
        op("aten::zeros", 10, 20),
        op("aten::zero_", 12, 15, dims="[[100]]", types=FLOATS),
        runtime("cudaMemsetAsync", 14, 3, correlation=5),
        kernel("fill", 20, 2, correlation=5),
    ]
    assert find(facts_of(stepped(on_device, sent(30), used(62)))) == []


def test_what_another_thread_made_is_not_what_is_copied():
    elsewhere = [{**event, "tid": 2} for event in sent(30) if event["pid"] == 1]
    copies = [event for event in sent(30) if event["pid"] != 1]
    assert find(facts_of(stepped(made(10), elsewhere, copies, steps=2))) == []


@pytest.mark.parametrize(("steps_with", "reported"), [(1, 0), (2, 1)])
def test_it_counts_from_half_of_the_steps_on(steps_with, reported):
    events = [
        *stepped(made(10), sent(30), used(62), steps=steps_with),
        *stepped(sent(30), used(62), steps=4 - steps_with, first=steps_with),
    ]
    assert len(find(facts_of(events))) == reported


def test_without_a_gpu_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), *made(10)])
    assert Need.DEVICE in missing_needs(facts, host_created_tensor.needs)


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("x = torch.zeros(100).to(device)", "x = torch.zeros(100, device=device)"),
        ("x = torch.rand(100).to(device)", None),  # other numbers on a device
        ("return mask.to(device)", None),
    ],
)
def test_the_line_that_makes_and_sends_the_same_numbers_is_changed(source: str, after: str | None) -> None:
    lines = [mark(0, 9, 52), *made(10), *sent(30.5), *used(62)]
    facts = facts_of(
        [*stepped(lines, steps=1), *stepped(made(10), sent(30.5), used(62), first=1)],
        callsites=(CallSite("a.py", 3, "f", source),),
    )
    (found,) = [one for one in diagnose(facts).findings if one.rule == "host-created-tensor"]
    assert found.change == (Change("a.py", 3, source, after) if after else None)
