"""Gradients that are averaged once for each backward pass, where the optimizer steps after several."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.redundant_allreduce import redundant_allreduce
from profkit.run import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
STORES = "torch::autograd::AccumulateGrad"
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def find(facts) -> list[Suspicion]:
    return list(redundant_allreduce.check(facts))


def one_pass(at: float, adds: bool = True, reduces: bool = True, parameters: int = 2) -> list[Json]:
    """100 us: 20 forward, a backward node of 10, and 10 for each of the parameters, whose storing takes 2. The last one
    starts an all-reduce, which another thread ends 20 us after the last node; copying back takes 10 more."""
    events = [annotation("DistributedDataParallel.forward", at, 20), op("aten::mm", at + 1, 18)]
    events.append(op("autograd::engine::evaluate_function: MmBackward0", at + 20, 10))
    for i in range(parameters):
        begin = at + 30 + 10 * i
        events += [op(NODE, begin, 10), op(STORES, begin, 2)]
        events += [op("aten::add_", begin + 0.5, 1)] if adds else []
    end = at + 30 + 10 * parameters
    if reduces:
        events += [op("c10d::allreduce_", end - 5, 4), annotation("gloo:all_reduce", end - 4, 24, tid=9)]
        events += [op(COPY, end + 20, 10), op("aten::copy_", end + 21, 8)]
    return events


def update(at: float, *passes: list[Json]) -> list[Json]:
    """The passes, 100 us each, and 20 us of the optimizer."""
    moved = [{**event, "ts": event["ts"] + at + 100 * i} for i, one in enumerate(passes) for event in one]
    return [*moved, annotation("Optimizer.step#SGD.step", at + 100 * len(passes), 20)]


def steps_of(*passes: list[Json], count: int = 4) -> list[Json]:
    length = 100 * len(passes) + 20
    return [event for i in range(count) for event in (step(i, length * i, length), *update(length * i, *passes))]


def test_of_four_passes_all_but_the_last_lose_what_the_averaging_takes():
    facts = facts_of(steps_of(one_pass(0, adds=False), *[one_pass(0)] * 3))
    (found,) = find(facts)
    assert len(found.rows) == 3 * 4
    assert set(found.rows) < set(rows_named(facts.trace, "c10d::allreduce_"))
    assert found.count == 3
    assert found.evidence == {"all_reduces_per_optimizer_step": 4.0, "backward_passes_per_optimizer_step": 4.0}
    # In each: 8 us of each of two nodes, and from the last node on 30 until the gradients are copied back.
    assert predict_saving(facts, found.edit).fraction == pytest.approx(3 * (2 * 8 + 30) / 420, abs=1e-4)


def test_passes_without_an_all_reduce_before_the_last_are_silent():
    quiet = [one_pass(0, reduces=False)] * 3
    assert find(facts_of(steps_of(*quiet, one_pass(0)))) == []


def test_one_pass_for_each_step_is_silent():
    assert find(facts_of(steps_of(one_pass(0)))) == []


def test_passes_whose_gradients_are_assigned_belong_to_several_models():
    assert find(facts_of(steps_of(one_pass(0, adds=False), one_pass(0, adds=False)))) == []


def test_passes_that_store_different_numbers_of_gradients_belong_to_several_models():
    assert find(facts_of(steps_of(one_pass(0), one_pass(0, parameters=3)))) == []


@pytest.mark.parametrize(("added", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_gradients_have_to_be_added_to_those_before(added, reported):
    last = [event for event in one_pass(0, parameters=4) if event["name"] != "aten::add_"]
    last += [op("aten::add_", 30.5 + 10 * i, 1) for i in range(added)]
    assert len(find(facts_of(steps_of(one_pass(0, parameters=4), last)))) == reported


def test_several_forward_passes_before_one_backward_pass_are_silent():
    """As where a critic looks at real and at generated pictures."""
    forward_only = [annotation("DistributedDataParallel.forward", 0, 20), op("aten::mm", 1, 18)]
    assert find(facts_of(steps_of(forward_only, one_pass(0)))) == []


def test_all_reduces_outside_of_the_storing_of_gradients_do_not_count():
    """Metrics, and synchronised batch norm."""

    def elsewhere() -> list[Json]:
        return [*one_pass(0, reduces=False), op("c10d::allreduce_", 60, 5), op("c10d::allreduce_", 22, 5)]

    assert find(facts_of(steps_of(elsewhere(), elsewhere()))) == []


def test_without_a_step_of_an_optimizer_it_cannot_look():
    events = [event for event in steps_of(one_pass(0), one_pass(0)) if not event["name"].startswith("Optimizer")]
    with pytest.raises(CannotLook):
        find(facts_of(events))


def test_without_distributed_data_parallel_nothing_is_said():
    events = [event for event in steps_of(one_pass(0), one_pass(0)) if "Distributed" not in event["name"]]
    assert find(facts_of(events)) == []


def test_the_line_is_that_of_the_backward_pass():
    sites = (CallSite("train.py", 7, "train"), CallSite("train.py", 8, "train"))
    first = [mark(0, 0, 20), mark(1, 20, 70), mark(0, 100, 20), mark(1, 120, 70)]
    events = [*update(0, one_pass(0), one_pass(0)), step(0, 0, 220), *first]
    later = steps_of(one_pass(0), one_pass(0), count=3)
    events += [{**event, "ts": event["ts"] + 220} for event in later]
    (found,) = find(facts_of(events, callsites=sites))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 8)


def test_on_a_device_the_collective_of_the_redundant_pass_vanishes():
    """It runs on a stream of its own for 50 us of each pass, and the host waits for it at the end."""

    def on_device(number: int) -> list[Json]:
        events = [event for event in one_pass(0) if event["name"] not in ("gloo:all_reduce", COPY, "aten::copy_")]
        return [*events, runtime("cudaLaunchKernel", 46, 1, correlation=number)]

    events = []
    for i in range(4):
        at = 220 * i
        passes = update(at, on_device(2 * i + 1), on_device(2 * i + 2))
        work = [kernel("ncclKernel_AllReduce", at + 50 + 100 * j, 50, correlation=2 * i + j + 1, stream=9)
                for j in (0, 1)]  # fmt: skip
        events += [step(i, at, 220), *passes, *work, runtime("cudaDeviceSynchronize", at + 202, 2)]
    facts = facts_of(events)
    (found,) = find(facts)
    assert found.edit.work.tolist() == rows_named(facts.trace, "ncclKernel_AllReduce")[::2]
    assert found.edit.work_kept_ns.tolist() == [0] * 4
    assert len(found.edit.span_start_ns) == 0


def test_a_recording_that_begins_amid_its_only_backward_pass_shows_nothing():
    events = [event for event in one_pass(0) if event["name"] != "DistributedDataParallel.forward"]
    later = annotation("DistributedDataParallel.forward", 130, 20)
    assert find(facts_of([step(0, 0, 200), *events, annotation("Optimizer.step#SGD.step", 100, 20), later])) == []
