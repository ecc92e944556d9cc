"""Gradients that are averaged once for each backward pass, where the optimizer steps after several."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.late_overlap import late_overlap
from profkit.rules.redundant_allreduce import redundant_allreduce
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
STORES = "torch::autograd::AccumulateGrad"
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def find(facts) -> list[Suspicion]:
    return list(redundant_allreduce.check(facts))


def one_pass(at: float, adds: bool = True, reduces: bool = True, parameters: int = 2) -> list[Json]:
    """100 µs: 20 forward, a backward node of 10, and 10 for each of the parameters, whose storing takes 2. The last one
    starts an all-reduce, which another thread ends 20 µs after the last node; copying back takes 10 more."""
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
    """The passes, 100 µs each, and 20 µs of the optimizer."""
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
    # In each: 8 µs of each of two nodes, and from the last node on 30 until the gradients are copied back.
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
    """It runs on a stream of its own for 50 µs of each pass, and the host waits for it at the end."""

    def on_device(number: int) -> list[Json]:
        events = [event for event in one_pass(0) if event["name"] not in ("gloo:all_reduce", COPY, "aten::copy_")]
        return [*events, runtime("cudaLaunchKernel", 46, 1, correlation=number)]

    events = []
    for i in range(4):
        at = 220 * i
        passes = update(at, on_device(2 * i + 1), on_device(2 * i + 2))
        work = [
            kernel("ncclKernel_AllReduce", at + 50 + 100 * j, 50, correlation=2 * i + j + 1, stream=9) for j in (0, 1)
        ]
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


TWO_RANKS = {"distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2}}
SAME = (1000, 1000, 1000)
"""Elements of four bytes that the three gradients of `averaged` have."""


def all_reduce(at: float, elements: int, duration: float = 20) -> list[Json]:
    """The call of 2 µs waits until the thread of the backend is done, ``duration`` and 1 µs after it began."""
    ran = annotation("gloo:all_reduce", at + 1, duration, tid=9)
    ran["args"] |= {"Input Dims": [[elements]], "Input type": ["float"]}
    waits = ["", "", "", "", "False", "-1"]
    types = ["TensorList", "", "", "", "Scalar", "Scalar"]
    return [op("c10d::allreduce_", at, 2, dims=[[[elements]], [], [], [], [], []], types=types, concrete=waits), ran]


def averaged(*messages: int, within: int | None = 3000, behind: float = 0) -> list[Json]:
    """20 µs forward, three gradients from 20 to 50 µs, of which the last one's storing starts an all-reduce of all,
    then the messages from 60 µs on, 30 µs apart, each divided, and the optimizer from 190 to 200 µs."""
    events = [annotation("DistributedDataParallel.forward", 0, 20), op("aten::mm", 1, 18)]
    for i in range(3):
        events.append(op(NODE, 20 + 10 * i, 10))
        events.append(op(STORES, 21 + 10 * i, 2, dims=[[1000]], types=["float"]))
    events += all_reduce(44, within, 4) if within else []
    for i, elements in enumerate(messages):
        events += [*all_reduce(60 + behind + 30 * i, elements), op("aten::div_", 82 + behind + 30 * i, 2)]
    return [*events, annotation("Optimizer.step#SGD.step", 190, 10), op("aten::add_", 191, 8)]


def trained(one: list[Json], length: float = 200, **more: Any) -> Any:
    events = [{**event, "ts": event["ts"] + length * i} for i in range(4) for event in one]
    return facts_of([*events, *(step(i, length * i, length) for i in range(4))], **(TWO_RANKS | more))


def test_averages_of_the_backward_pass_that_the_program_averages_again_vanish_with_their_waits():
    facts = trained(averaged(*SAME))
    (found,) = find(facts)
    assert found.count == 3
    assert found.evidence == {"all_reduces_per_step": 3, "gradient_bytes": 12_000}
    assert "12.0 kB" in found.message
    inside = facts.trace.events.start_ns[found.rows] % 200_000
    assert sorted(set(inside.tolist())) == [60_000, 90_000, 120_000]
    # Each call takes 2 µs, and 19 until the thread is done.
    assert predict_saving(facts, found.edit).fraction == pytest.approx(3 * 21 / 200, abs=1e-4)
    assert list(late_overlap.check(facts)) == []


def test_one_flattened_message_is_told_as_well():
    (found,) = find(trained(averaged(3000)))
    assert found.count == 1


@pytest.mark.parametrize("messages", [(1, *SAME), (*SAME, 1), (1, 3000)])
def test_metrics_beside_the_gradients_are_not_counted(messages):
    (found,) = find(trained(averaged(*messages)))
    assert found.evidence["gradient_bytes"] == 12_000
    assert found.count == len(messages) - 1


@pytest.mark.parametrize("messages", [(), (1,), (1000, 1000), (1000, 1000, 999), (3001,)])
def test_other_bytes_than_those_of_the_gradients_are_silent(messages):
    assert find(trained(averaged(*messages))) == []


@pytest.mark.parametrize(("more", "reported"), [(1499, 1), (1500, 0)])
def test_beside_half_as_much_else_they_may_be_statistics_of_a_second_order_optimizer(more, reported):
    assert len(find(trained(averaged(*SAME, more)))) == reported


def test_gradients_that_only_the_program_averages_are_late_not_redundant():
    """Without DistributedDataParallel's all-reduces, as in a program that runs all under `no_sync`."""
    facts = trained(averaged(*SAME, within=None))
    assert find(facts) == []
    assert len(list(late_overlap.check(facts))) == 1


@pytest.mark.parametrize(("within", "reported"), [(3000, 1), (2999, 0)])
def test_all_gradients_have_been_averaged_before(within, reported):
    """Where a part of the model is not in DistributedDataParallel, its gradients are for the program to average."""
    assert len(find(trained(averaged(*SAME, within=within)))) == reported


def test_averaging_parameters_after_the_step_of_the_optimizer_is_silent():
    """Local SGD."""
    assert find(trained(averaged(*SAME, behind=145), length=400)) == []


@pytest.mark.parametrize(("ranks", "reported"), [(3, True), (4, False)])
def test_four_ranks_may_average_within_machines_first_and_then_between_them(ranks, reported):
    """Gloo does not say which group a message belongs to."""
    facts = trained(averaged(*SAME), distributedInfo={"backend": "gloo", "rank": 0, "world_size": ranks})
    if reported:
        assert len(find(facts)) == 1
    else:
        with pytest.raises(CannotLook, match="which processes"):
            find(facts)


def in_groups(first: str, second: str) -> list[Json]:
    """What each all-reduce says of its group, in the event around it."""
    events = averaged(*SAME)
    calls = [event for event in events if event["name"] == "gloo:all_reduce"]
    for call in calls:
        name = first if call["ts"] < 50 else second
        call["args"] |= {
            "Collective name": "allreduce",
            "In msg nelems": call["args"]["Input Dims"][0][0],
            "dtype": "Float",
            "Process Group Name": name,
            "Group size": 4,
        }
    return events


@pytest.mark.parametrize(("second", "reported"), [("0", 1), ("1", 0)])
def test_a_named_group_tells_the_same_average_from_that_of_other_processes(second, reported):
    facts = trained(in_groups("0", second), distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8})
    assert len(find(facts)) == reported


def test_without_shapes_it_cannot_tell_what_is_averaged_again():
    bare = averaged(*SAME)
    for event in bare:
        event["args"] = {}
    with pytest.raises(CannotLook, match="how large"):
        find(trained(bare))


def of_steps(*steps: list[Json]) -> Any:
    """The first one is recorded with shapes, the others without."""
    events = [step(i, 200 * i, 200) for i in range(len(steps))]
    for i, one in enumerate(steps):
        events += [{**event, "ts": event["ts"] + 200 * i, "args": {} if i else event["args"]} for event in one]
    return facts_of(events, **TWO_RANKS)


def test_steps_without_shapes_are_judged_by_one_that_has_them():
    (found,) = find(of_steps(*[averaged(*SAME)] * 4))
    assert len(found.rows) == 12


def test_a_step_that_cannot_be_compared_does_not_hide_that_the_others_were():
    assert find(of_steps(averaged(1), averaged(1), averaged(1, 1), averaged(1))) == []


def test_the_line_is_that_of_the_second_averaging():
    sites = (CallSite("train.py", 7, "train"), CallSite("train.py", 9, "train"))
    one = averaged(*SAME)
    events = [{**event, "ts": event["ts"] + 200 * i} for i in range(4) for event in one]
    marks = [mark(0, 19.5, 31), mark(1, 59, 90)]
    ranges = [*marks, *(step(i, 200 * i, 200) for i in range(4))]
    facts = facts_of([*events, *ranges], callsites=sites, **TWO_RANKS)
    (found,) = find(facts)
    assert set(facts.lines.forward_site[found.rows].tolist()) == {1}


def test_on_a_device_the_second_collectives_vanish():
    """60 µs of kernels in the stream of the first one, for which the optimizer's step waits."""

    def launched(at: float, number: int) -> list[Json]:
        return [
            op("c10d::allreduce_", at, 4, dims=[[[3000]]], types=["TensorList"]),
            op("record_param_comms", at + 1, 3, dims=[[[3000]]], types=["TensorList"]),
            op("nccl:all_reduce", at + 1, 3, dims=[[3000]], types=["float"]),
            runtime("cudaLaunchKernel", at + 2, 1, correlation=number),
        ]

    events = []
    for i in range(4):
        at = 200 * i
        one = [*averaged(within=None), *launched(44, 2 * i + 1), *launched(60, 2 * i + 2)]
        events += [{**event, "ts": event["ts"] + at} for event in one]
        events += [
            kernel("ncclKernel_AllReduce", at + 50, 20, correlation=2 * i + 1, stream=9),
            kernel("ncclKernel_AllReduce", at + 70, 60, correlation=2 * i + 2, stream=9),
            runtime("cudaStreamSynchronize", at + 70, 62),
            step(i, at, 200),
        ]
    facts = facts_of(events, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 64})
    (found,) = find(facts)
    assert found.edit.work.tolist() == rows_named(facts.trace, "ncclKernel_AllReduce")[1::2]
    assert len(found.edit.span_start_ns) == 0


def test_all_reduces_of_the_forward_pass_are_something_else():
    """Activations of a layer that several processes share may be as large as the gradients are."""
    assert find(trained([*averaged(), *all_reduce(4, 3000, 8)])) == []


def test_two_models_with_an_optimizer_each_average_their_own_gradients():
    """A generator and its critic: what the second pass adds to is not what the first one has averaged."""
    events = []
    for i in range(4):
        events += [step(i, 240 * i, 240), *update(240 * i, one_pass(0)), *update(240 * i + 120, one_pass(0))]
    assert find(facts_of(events)) == []


def test_several_passes_and_a_second_averaging_are_two_findings():
    before = [event for event in averaged() if event["name"] not in ("Optimizer.step#SGD.step",)]
    after = [{**event, "ts": event["ts"] + 200} for event in averaged(*SAME)]
    adds = [op("aten::add_", at + 0.5, 1) for at in (221, 231, 241)]
    both = find(trained([*before, *after, *adds], length=400))
    assert [len(found.rows) for found in both] == [4, 12]
