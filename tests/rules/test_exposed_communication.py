"""Transfers while nothing is computed, and waits for a late rank, which are not transfers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause
from profkit.patterns.averaging.exposed import find_exposed_of
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.exposed_communication import exposed_communication
from profkit.rules.late_overlap import late_overlap
from profkit.rules.straggler import straggler
from profkit.savings.launch.launch_savings import predict_launch_saving
from profkit.savings.simulate import predict_saving
from tests.derive.launch.launches import Act, ask, both, end_step, facts_of_launch, launch_of, wait, work
from tests.derive.launch.tables import Did, table
from tests.traces import annotation, facts_of, kernel, op, runtime, step

Json = dict[str, Any]
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
STARTS = ["", "", "", "", "True", "-1"]
TYPES = ["TensorList", "", "", "", "Scalar", "Scalar"]
MB = 1 << 20


def training(kind: str, late: float = 0, steps: int = 5) -> list[Act]:
    """Each step: 95 µs of computing plus ``late``, a collective that the host waits for, and 5 µs of computing."""
    acts: list[Act] = []
    for i in range(steps):
        acts += [work(95 + late, Cause.COMPUTE, 0), *both(f"{kind}#{i}"), work(5, Cause.COMPUTE, 1), end_step()]
    return acts


def launched(kind: str, transfer: float, *late: float) -> Launch:
    return launch_of([training(kind, one) for one in late], {kind: transfer})


def find(facts: Any) -> list[Suspicion]:
    return list(exposed_communication.check(facts))


def test_exposed_gradients_are_reported_and_half_of_their_time_is_saved():
    facts = facts_of_launch(launched("all_reduce", 60, 0, 0))
    (found,) = find(facts)
    assert found.evidence == {"exposed_ns_per_step": 60_000, "kind": "gradients", "in_computing_stream": 0}
    assert (found.location.file, found.location.line) == ("train.py", 10)
    assert "bf16_compress_hook" in found.fix
    assert predict_launch_saving(facts, found.launch_edit).fraction == pytest.approx(30 / 160, abs=0.001)


def test_a_wait_for_a_late_rank_is_left_to_straggler():
    """Rank 0 is idle for 62 µs of each step in both launches. In the first launch it waits 60 of them for rank 1."""
    facts = facts_of_launch(launched("all_reduce", 2, 0, 60))
    assert find(facts) == []
    assert len(list(straggler.check(facts))) == 1
    slow = facts_of_launch(launched("all_reduce", 62, 0, 0))
    assert len(find(slow)) == 1
    assert list(straggler.check(slow)) == []


@pytest.mark.parametrize(("transfer", "reported"), [(6.5, 1), (6.1, 0)])
def test_gradients_that_save_less_than_three_percent_of_the_step_are_silent(transfer, reported):
    """Half of the transfer is 3.25 of 106.5 µs, or 3.1 %, and 3.05 of 106.1 µs, or 2.9 %."""
    assert len(find(facts_of_launch(launched("all_reduce", transfer, 0, 0)))) == reported


@pytest.mark.parametrize(("transfer", "reported"), [(3.2, 1), (3.0, 0)])
def test_transfers_that_can_be_hidden_save_their_whole_time(transfer, reported):
    found = find(facts_of_launch(launched("all_gather", transfer, 0, 0)))
    assert len(found) == reported
    assert all("forward_prefetch" in one.fix for one in found)


def test_the_saving_is_limited_by_the_compute_of_the_step():
    """Of 300 µs, 100 fit behind the compute of the step."""
    facts = facts_of_launch(launched("all_to_all", 300, 0, 0))
    (found,) = find(facts)
    assert predict_launch_saving(facts, found.launch_edit).fraction == pytest.approx(100 / 400, abs=0.001)


def test_transfers_hidden_behind_compute_are_silent():
    acts: list[Act] = []
    for i in range(5):
        acts += [work(20), ask(f"all_gather#{i}"), work(80), wait(f"all_gather#{i}"), end_step()]
    assert find(facts_of_launch(launch_of([acts, acts], {"all_gather": 70}))) == []


def test_a_barrier_is_silent():
    assert find(facts_of_launch(launched("barrier", 60, 0, 0))) == []


def test_for_gradients_in_the_computing_stream_the_fix_is_a_stream_of_their_own():
    launch = launched("all_reduce", 60, 0, 0)
    there = [
        replace(table, collectives=replace(table.collectives, on_compute=np.ones(5, dtype=bool)))
        for table in launch.tables
    ]
    (found,) = find(facts_of_launch(replace(launch, tables=tuple(there))))
    assert found.fix.startswith("It runs in the stream that computes")


def test_a_launch_with_missing_ranks_is_silent():
    """Two of the four ranks of the group were recorded. The last rank to start may be one of the others."""
    launch = launched("all_reduce", 60, 0, 0)
    groups = (replace(launch.groups[0], size=4, ranks=None),)
    assert find(facts_of_launch(replace(launch, groups=groups, world_size=4))) == []


def message(at: float, begin: float, duration: float, size_bytes: int | None) -> list[Json]:
    shape = [size_bytes // 4] if size_bytes is not None else None
    ran = annotation("gloo:all_reduce", begin, duration, tid=9)
    if shape:
        ran["args"] |= {"Input Dims": [shape], "Input type": ["float"]}
    dims = [[shape], [], [], [], [], []] if shape else None
    return [op("c10d::allreduce_", at, 1, dims=dims, types=TYPES, concrete=STARTS), ran]


def trained(
    durations: list[float], size_bytes: int | None = MB, *, backward: bool = True, messages: int = 1, late: bool = False
) -> Any:
    """Each step as one rank records it: 2 ms of computing, then the gradients, for which the host waits."""
    events, now = [], 0.0
    for i, duration in enumerate(durations):
        node = NODE if backward else "model"
        one = [
            op("aten::mm", 0, 1_900, dims=[[4, 4]], types=["float"]),
            op(node, 1_900, 50 if late else 100),
            op("aten::add_", 2_000 + duration + 1, 99),
        ]
        if late:
            one.append(op("torch::autograd::AccumulateGrad", 1_901, 2, dims=[[MB // 4]], types=["float"]))
        part = duration / messages
        for k in range(messages):
            one += message(1_960 + 2 * k, 2_000 + part * k, part, size_bytes and size_bytes // messages)
        events += [{**event, "ts": event["ts"] + now} for event in one] + [step(i, now, 2_100 + duration)]
        now += 2_100 + duration
    return facts_of(events)


def test_with_one_rank_no_message_counts_longer_than_the_shortest():
    """Messages take 700 to 3,000 µs a step, so the transfer takes at most 700. Half of that can be saved."""
    facts = trained([700, 3_000, 1_000, 700])
    (found,) = find(facts)
    assert found.evidence["exposed_ns_per_step"] == 700_000
    assert "One rank alone" in found.message
    assert predict_saving(facts, found.edit).fraction == pytest.approx(4 * 350 / (4 * 2_100 + 5_400), abs=0.001)


def test_transfer_time_is_bounded_by_larger_messages_and_by_the_rate_of_smaller_ones():
    """If 1 MB takes 200 µs, 2 MB take at most 400, 4 MB at most 800, and half a megabyte takes no longer than 1 MB."""
    sizes, took = [MB, 4 * MB, 2 * MB, MB // 2], [200, 3_000, 500, 700]
    did = [Did(10_000 * i, 10_000 * i + took[i], step=i, size=sizes[i], waited=300) for i in range(4)]
    exposed = find_exposed_of(table(0, did))
    assert exposed.transfer_ns.tolist() == [200_000, 800_000, 400_000, 200_000]
    assert exposed.exposed_ns.tolist() == [200_000, 300_000, 300_000, 200_000]


def test_gradients_sent_in_many_small_messages_are_silent():
    """1 MB of gradients in one message is reported, and four messages of a quarter that take the same time are not."""
    assert len(find(trained([700] * 4))) == 1
    assert find(trained([700] * 4, messages=4)) == []


def test_gradients_after_the_backward_pass_are_left_to_late_overlap():
    facts = trained([700] * 4, late=True)
    assert find(facts) == []
    assert len(list(late_overlap.check(facts))) == 1


def test_a_launch_with_a_rank_whose_work_was_not_recorded_is_silent():
    launch = launched("all_reduce", 60, 0, 0)
    light = replace(launch.tables[1], work=replace(launch.tables[1].work, cause=np.full(10, int(Cause.UNRECORDED))))
    assert find(facts_of_launch(replace(launch, tables=(launch.tables[0], light)))) == []


def test_with_one_rank_on_a_device_half_of_the_exposed_kernel_time_is_saved():
    """Each step: three kernels of 500 µs, an NCCL kernel of 700 µs, and then the optimizer's kernel of 230 µs."""
    events: list[Json] = []
    for i in range(4):
        at, first = 2_500 * i, 10 * i
        said = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": MB // 4,
            "Group size": 2,
            "Process Group Name": "0",
        }
        nccl = kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", at + 1_550, 700, correlation=first + 2, stream=20
        )
        nccl["args"] |= said
        for k in range(3):
            events += [
                op("aten::mm", at + 6 * k, 6),
                runtime("cudaLaunchKernel", at + 6 * k + 1, 4, correlation=first + 4 + k),
                kernel("gemm", at + 50 + 500 * k, 500, correlation=first + 4 + k),
            ]
        events += [
            op(NODE, at + 20, 30),
            op("c10d::allreduce_", at + 25, 20),
            runtime("cudaLaunchKernelExC", at + 30, 5, correlation=first + 2),
            op("aten::add_", at + 60, 10),
            runtime("cudaLaunchKernel", at + 61, 5, correlation=first + 3),
            runtime("cudaDeviceSynchronize", at + 80, 2_410),
            nccl,
            kernel("adam", at + 2_250, 230, correlation=first + 3),
            step(i, at, 2_500),
        ]
    facts = facts_of(events)
    (found,) = find(facts)
    assert found.evidence["exposed_ns_per_step"] == 700_000
    assert predict_saving(facts, found.edit).fraction == pytest.approx(350 / 2_500, abs=0.002)


@pytest.mark.parametrize(("duration", "reported"), [(530, 1), (520, 0)])
def test_with_one_rank_savings_below_a_tenth_of_the_step_are_silent(duration, reported):
    """Half of the transfer is 265 of 2,630 µs, or 10.1 %, and 260 of 2,620 µs, or 9.9 %."""
    assert len(find(trained([duration] * 4))) == reported


def test_with_one_rank_implausibly_slow_transfers_are_silent():
    """10 Gbit Ethernet carries 1 MB in 839 µs. The rest of the 50 ms may be a wait for a late rank."""
    assert find(trained([50_000] * 4)) == []


def test_inference_is_silent():
    assert find(trained([700] * 4, backward=False)) == []


def test_without_three_steps_or_message_sizes_it_cannot_look():
    with pytest.raises(CannotLook, match="three steps"):
        find(trained([700, 700]))
    with pytest.raises(CannotLook, match="how large"):
        find(trained([700] * 4, size_bytes=None))


def test_a_rank_without_collectives_is_silent():
    assert find(facts_of([op("aten::mm", 0, 9), step(0, 0, 10)])) == []


def sharded_on_a_cpu(name: str) -> Any:
    """Each step: a gather of 300 µs in the forward pass and one in the backward pass, after 1 ms of computing each."""
    events: list[Json] = []
    for i in range(4):
        at = 2_600 * i
        for k, inside in enumerate(("_pre_forward", "_pre_backward_hook")):
            begin = at + 1_300 * k
            ran = annotation("gloo:all_gather", begin + 1_004, 295, tid=9)
            ran["args"] |= {"Input Dims": [[MB // 4]], "Input type": ["float"]}
            events += [
                op("aten::mm" if not k else NODE, begin, 1_000),
                annotation(name + inside, begin + 1_000, 299),
                op(
                    "c10d::_allgather_base_",
                    begin + 1_001,
                    2,
                    dims=[[MB // 2], [MB // 4], [], [], []],
                    types=["float", "float", "", "Scalar", "Scalar"],
                    concrete=["", "", "", "False", "-1"],
                ),
                ran,
            ]
        events.append(step(i, at, 2_600))
    return facts_of(events)


def test_for_fsdp_on_a_cpu_the_fix_saves_the_gathers_of_the_backward_pass():
    """Dropping the gather of the backward pass saves 295 of 2,600 µs. Outside FSDP, hiding both gathers saves 590."""
    facts = sharded_on_a_cpu("FullyShardedDataParallel.")
    (found,) = find(facts)
    assert "SHARD_GRAD_OP" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(295 / 2_600, abs=0.002)
    others = sharded_on_a_cpu("mine.")
    (found,) = find(others)
    assert "forward_prefetch" in found.fix
    assert predict_saving(others, found.edit).fraction == pytest.approx(590 / 2_600, abs=0.002)


def broadcasting(inside: str) -> Any:
    """Each step: a broadcast of 300 µs and a forward pass of 250 in the range ``inside``, then a backward pass."""
    events: list[Json] = []
    for at in range(0, 3_200, 800):
        ran = annotation("gloo:broadcast", at + 4, 295, tid=9)
        ran["args"] |= {"Input Dims": [[MB]], "Input type": ["float"]}
        call = op(
            "c10d::broadcast_",
            at + 1,
            2,
            dims=[[[MB]], [], [], [], [], []],
            types=TYPES,
            concrete=["", "", "0", "0", "False", "-1"],
        )
        events += [
            annotation(inside, at, 550),
            call,
            ran,
            op("aten::mm", at + 300, 250),
            op(NODE, at + 550, 250),
            step(at // 800, at, 800),
        ]
    return facts_of(events)


def test_for_buffers_broadcast_by_ddp_the_fix_is_not_to_broadcast_them():
    facts = broadcasting("DistributedDataParallel.forward")
    (found,) = find(facts)
    assert "broadcast_buffers=False" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(295 / 800, abs=0.01)
    (found,) = find(broadcasting("mine"))
    assert "async_op=True" in found.fix


@pytest.mark.parametrize(("kind", "reported"), [("all_reduce", 1), ("all_gather", 0), ("all_to_all", 0)])
def test_in_the_computing_stream_only_gradients_are_reported(kind: str, reported: int):
    """The next kernel may need activations, so they gain nothing from a stream of their own."""
    launch = launched(kind, 60, 0, 0)
    there = [
        replace(table, collectives=replace(table.collectives, on_compute=np.ones(5, dtype=bool)))
        for table in launch.tables
    ]
    assert len(find(facts_of_launch(replace(launch, tables=tuple(there))))) == reported
    assert len(find(facts_of_launch(launch))) == 1
