"""One rank's recording, reduced to its collectives, its waits and its own work."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.launch.table import Cause, Group, RankTable
from profkit.patterns.ranks.table import rank_table
from profkit.run.directory import CallSite, LoaderUse, RankIdentity, Run
from tests.traces import annotation, facts_of, kernel, mark, memcpy, op, python, runtime, step

Json = dict[str, Any]
TWO = {"rank": 1, "world_size": 2}
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def table_of(events: list[Json], **known: Any) -> RankTable:
    return rank_table(facts_of(events, distributedInfo=TWO, **known), "rank1")


def saying(event: Json, **said: Any) -> Json:
    return {**event, "args": {**event["args"], **said}}


def reduce_on_gloo(
    at: float, until: float, *, values: int = 4, asynchronous: bool | None = None, tid: int = 9, external: int = 1
) -> list[Json]:
    """A call of 2 µs, and from its middle on what a thread runs."""
    reported = None if asynchronous is None else ["", "", "", "", str(asynchronous), "-1"]
    call = op("c10d::allreduce_", at, 2, dims=[[[values]], [], [], [], [], []], concrete=reported, external=external)
    ran = annotation("gloo:all_reduce", at + 1, until - at - 1, tid=tid)
    return [call, saying(ran, **{"Input Dims": [[values]], "Input type": ["float"]})]


def waits_us(table: RankTable) -> list[tuple[float, float]]:
    """From when to when, from the first step's start on; those of no length left out."""
    start, end = table.collectives.wait_start_ns, table.collectives.wait_end_ns
    pairs = zip(start.tolist(), end.tolist(), strict=True)
    zero = int(table.steps.start_ns[0])
    return [((begin - zero) / 1e3, (until - zero) / 1e3) for begin, until in pairs if begin < until]


def spent_us(table: RankTable) -> dict[tuple[Cause, int], float]:
    """By cause and line, 0 for none."""
    found: dict[tuple[Cause, int], float] = {}
    work = table.work
    for cause, site, time_ns in zip(work.cause.tolist(), work.site.tolist(), work.time_ns.tolist(), strict=True):
        key = Cause(cause), table.sites[site].line if site >= 0 else 0
        found[key] = found.get(key, 0) + time_ns / 1e3
    return found


def test_a_call_of_gloo_that_returns_when_it_is_over_is_waited_for():
    events = [
        step(0, 0, 100),
        op("aten::mm", 0, 20),
        *reduce_on_gloo(20, 70, asynchronous=False),
        op("aten::mm", 80, 20),
    ]
    table = table_of(events)
    assert table.groups == (Group("", 2),)
    one = table.collectives
    assert table.texts[one.operation[0]] == "all_reduce"
    assert (one.size_bytes.tolist(), one.sequence.tolist(), one.step.tolist()) == ([16], [0], [0])
    assert waits_us(table) == [(22, 70)]
    assert spent_us(table) == {(Cause.COMPUTE, 0): 42, (Cause.HOST, 0): 10}
    assert table.identity == RankIdentity(1, 2)


def test_averages_of_gradients_are_waited_for_from_the_last_operator_of_the_backward_pass():
    """Both threads are still at work then; the first one's wait ends with it."""
    events = [
        step(0, 0, 100),
        *reduce_on_gloo(10, 50, asynchronous=True, values=8),
        *reduce_on_gloo(20, 70, asynchronous=True, tid=8, external=2),
        op("aten::mm", 22, 10),
        op(COPY, 71, 4),
        op("aten::mm", 75, 25),
    ]
    table = table_of(events)
    assert waits_us(table) == [(32, 50), (50, 70)]
    assert table.collectives.size_bytes.tolist() == [32, 16]


def test_what_runs_beside_the_programs_own_work_is_not_waited_for():
    events = [step(0, 0, 100), *reduce_on_gloo(10, 50, asynchronous=True), op("aten::mm", 12, 88)]
    assert waits_us(table_of(events)) == []


def test_a_thread_that_sleeps_beyond_the_end_of_a_call_did_not_wait_for_it():
    events = [
        step(0, 0, 9000),
        *reduce_on_gloo(10, 5000, asynchronous=True),
        op("aten::mm", 12, 1),
        op("aten::mm", 8000, 900),
    ]
    table = table_of(events)
    assert waits_us(table) == []
    assert spent_us(table)[Cause.UNKNOWN, 0] == 10 + 7987 + 100


def test_two_threads_of_gloo_that_begin_in_the_other_order_keep_their_sizes():
    first, second = reduce_on_gloo(10, 50, values=8), reduce_on_gloo(13, 60, tid=8, external=2)
    first[1]["ts"] = 20
    table = table_of([step(0, 0, 100), *first, *second])
    assert table.collectives.size_bytes.tolist() == [32, 16]
    assert ((table.collectives.start_ns - table.steps.start_ns[0]) / 1e3).tolist() == [20, 14]


def test_gloo_runs_a_reduce_scatter_as_an_all_reduce_and_it_stays_what_was_asked_for():
    """Beside an all-reduce of as many values, which is told apart by the order."""
    asked = op(
        "c10d::_reduce_scatter_base_",
        20,
        50,
        dims=[[4], [8], [], [], [], []],
        types=["float", "float", "", "", "Scalar", "Scalar"],
        concrete=["", "", "", "", "False", "-1"],
    )
    ran = saying(annotation("gloo:all_reduce", 22, 46, tid=9), **{"Input Dims": [[8]], "Input type": ["float"]})
    events = [
        step(0, 0, 200),
        op("aten::mm", 0, 20),
        asked,
        ran,
        *reduce_on_gloo(80, 120, values=8, asynchronous=False),
        op("aten::mm", 130, 20),
    ]
    table = table_of(events)
    taken = table.collectives
    assert [table.texts[code] for code in taken.operation] == ["reduce_scatter", "all_reduce"]
    assert (taken.size_bytes.tolist(), taken.issue_ns.tolist()) == ([32, 32], [20_000, 80_000])


def test_a_repeated_call_moves_what_it_moved_in_the_located_step_whichever_thread_runs_it():
    """Its range there is another thread's, of which nothing is repeated, and shapes are not recorded in it."""
    later = [*reduce_on_gloo(150, 180), *reduce_on_gloo(250, 280, tid=8)]
    plain = [step(1, 100, 100), step(2, 200, 100), *({**event, "args": {}} for event in later)]
    table = table_of([step(0, 0, 100), mark(0, 5, 1), *reduce_on_gloo(10, 50), *plain])
    assert table.collectives.step.tolist() == [-1, 1, 2]
    assert table.collectives.size_bytes.tolist() == [16, 16, 16]
    assert {table.texts[code] for code in table.collectives.dtype} == {table.texts[table.collectives.dtype[0]]}


def launched(name: str, at: float, runs_at: float, duration: float, number: int, *, stream: int = 7) -> list[Json]:
    """A launch of 2 µs in an operator of 4, and its kernel."""
    return [
        op("aten::mm", at, 4, external=number),
        runtime("cudaLaunchKernel", at + 1, 2, correlation=number),
        kernel(name, runs_at, duration, correlation=number, stream=stream),
    ]


def reduce_on_nccl(at: float, runs_at: float, duration: float, number: int, **said: Any) -> list[Json]:
    reported = {
        "Collective name": "allreduce",
        "In msg nelems": 100,
        "dtype": "BFloat16",
        "Process Group Name": "7",
        "Process Group Ranks": "[1, 3]",
        "Group size": 2,
        "Process Group Description": "dp",
        **said,
    }
    return [
        op("c10d::allreduce_", at, 8, external=number),
        saying(op("record_param_comms", at + 1, 6, external=number + 100), **reported),
        annotation("nccl:all_reduce", at + 2, 4),
        runtime("cudaLaunchKernel", at + 3, 2, correlation=number),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", runs_at, duration, correlation=number, stream=20),
    ]


def test_work_that_is_launched_and_has_to_stand_back_waits_for_the_kernel():
    events = [
        step(0, 0, 100),
        *launched("gemm", 0, 10, 20, 1),
        *reduce_on_nccl(10, 20, 40, 2, Seq=5),
        *launched("gemm", 20, 60, 30, 3),
    ]
    table = table_of(events)
    one = table.collectives
    assert table.groups == (Group("7", 2, (1, 3), "dp"),)
    assert (one.sequence.tolist(), one.size_bytes.tolist(), one.on_compute.tolist()) == ([5], [200], [False])
    assert waits_us(table) == [(30, 60)]
    assert spent_us(table) == {(Cause.COMPUTE, 0): 50, (Cause.HOST, 0): 10, (Cause.UNKNOWN, 0): 10}


def test_a_device_whose_host_has_nothing_launched_waits_for_its_host():
    events = [
        step(0, 0, 100),
        *launched("gemm", 0, 10, 20, 1),
        *reduce_on_nccl(10, 20, 40, 2),
        *launched("gemm", 70, 75, 25, 3),
    ]
    assert waits_us(table_of(events)) == []


def test_a_host_that_waits_for_the_device_waits_for_the_kernel():
    events = [
        step(0, 0, 100),
        *launched("gemm", 0, 10, 20, 1),
        *reduce_on_nccl(10, 20, 40, 2),
        op("aten::item", 25, 37),
        runtime("cudaStreamSynchronize", 26, 35),
        *launched("gemm", 70, 75, 25, 3),
    ]
    assert waits_us(table_of(events)) == [(30, 60)]


def test_kernels_of_old_traces_have_their_sizes_from_the_range_around_their_launch():
    ran = saying(annotation("nccl:all_reduce", 2, 5), **{"Input Dims": [[3, 4]], "Input type": ["float"]})
    events = [
        step(0, 0, 100),
        op("c10d::allreduce_", 0, 9),
        ran,
        runtime("cudaLaunchKernel", 3, 2, correlation=1),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 9, 5, correlation=1),
    ]
    table = table_of(events)
    assert table.collectives.size_bytes.tolist() == [48]
    assert [table.texts[code] for code in table.collectives.operation.tolist()] == ["all_reduce"]


def test_a_kernel_without_anything_around_it_has_an_operation_and_no_size():
    table = table_of([step(0, 0, 50), kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)", 9, 5)])
    assert table.collectives.size_bytes.tolist() == [-1]
    assert table.texts[table.collectives.operation[0]] == "send_recv"


@pytest.mark.parametrize(
    ("name", "peer", "ranks"), [("send", {"Dst Rank": 0}, (1, 0)), ("recv", {"Src Rank": 0}, (0, 1))]
)
def test_a_message_between_two_ranks_is_a_matter_of_these_two(name: str, peer: Json, ranks: tuple[int, int]):
    said = {"Collective name": name, "Process Group Ranks": "[0, 1, 2]", "Group size": 3, **peer}
    (group,) = table_of([step(0, 0, 100), *reduce_on_nccl(10, 20, 40, 2, **said)]).groups
    assert group.ranks == ranks


SITES = (CallSite("train.py", 10, "main"), CallSite("train.py", 11, "main"), CallSite("train.py", 12, "main"))


def one_step(at: float, lines: bool) -> list[Json]:
    """Line 10 loads for 20 µs, line 11 sleeps for 2000, line 12 multiplies for 30."""
    marks = [mark(0, at, 20), mark(1, at + 20, 2000), mark(2, at + 2020, 30)] if lines else []
    return [*marks, annotation("enumerate(DataLoader)#next", at + 1, 19), op("aten::mm", at + 2021, 29)]


def test_what_lies_between_operators_has_the_line_that_the_located_step_shows_there():
    events = [step(0, 0, 2100), *one_step(0, True), step(1, 2100, 2100), *one_step(2100, False)]
    table = table_of(events, callsites=SITES)
    assert table.steps.number.tolist() == [1]
    assert spent_us(table) == {
        (Cause.INPUT, 10): 19,
        (Cause.UNKNOWN, 11): 2001,
        (Cause.COMPUTE, 12): 29,
        (Cause.UNKNOWN, 10): 1,
        (Cause.UNKNOWN, 0): 50,
    }


@pytest.mark.parametrize(("number", "line"), [(1, 5), (7, 0), (99_999, 0)])
def test_a_mark_of_a_line_that_was_never_written_down_is_of_no_line(number: int, line: int):
    """Numbers beyond the lines stand for functions and DataLoaders, of which there may be none."""
    sites = (CallSite("train.py", 4, "main"), CallSite("train.py", 5, "main"))
    events = [step(0, 0, 100), mark(number, 0, 90), op("aten::mm", 10, 60), *reduce_on_gloo(75, 80)]
    assert (Cause.COMPUTE, line) in spent_us(table_of(events, callsites=sites))


def test_a_loader_with_workers_is_told_where_it_is_made():
    made = CallSite("data.py", 3, "make")
    run = Run(loaders=(LoaderUse(2, 8, False, False, made, 100),), identity=RankIdentity(1, 2, host="a"))
    table = table_of([step(0, 0, 100), annotation("enumerate(DataLoader)#next", 0, 60)], run=run)
    assert spent_us(table)[Cause.INPUT, 3] == 60
    assert table.identity.host == "a"


def test_python_frames_tell_the_function_where_no_lines_are_recorded():
    events = [
        step(0, 0, 3000),
        python("train.py(5): main", 0, 3000),
        python("train.py(9): pause", 100, 2500),
        op("aten::mm", 0, 10),
        op("aten::mm", 2800, 10),
    ]
    assert spent_us(table_of(events))[Cause.UNKNOWN, 9] == 2790


def test_copies_and_garbage_are_told_apart():
    events = [
        step(0, 0, 100),
        *launched("gemm", 0, 10, 20, 1),
        memcpy("Memcpy HtoD (Pageable -> Device)", 30, 10),
        annotation("profkit.gc#2", 50, 20),
    ]
    spent = spent_us(table_of(events))
    assert (spent[Cause.COMPUTE, 0], spent[Cause.COPY, 0], spent[Cause.GARBAGE, 0]) == (20, 10, 20)


def test_a_rank_of_which_collectives_alone_were_recorded_waits_as_long_as_they_run():
    events = [step(0, 0, 100), kernel("ncclDevKernel_AllReduce_Sum_f32(args)", 10, 50, correlation=1)]
    assert waits_us(table_of(events)) == [(10, 60)]


def test_a_recording_without_collectives_has_a_table_that_says_so():
    table = table_of([step(3, 0, 100), op("aten::mm", 0, 60)])
    assert len(table.collectives) == 0
    assert table.notes == ("no collective operation is recorded",)
    assert spent_us(table)[Cause.COMPUTE, 0] == 60


def test_a_collective_that_takes_no_time_is_none_as_its_length_is_lost():
    ran = [annotation("gloo:all_reduce", at, duration, tid=9) for at, duration in ((10, 20), (40, 0), (60, 20))]
    assert len(table_of([step(0, 0, 100), op("aten::mm", 0, 5), *ran]).collectives) == 2


def test_a_rank_without_operators_has_a_table_all_the_same():
    assert len(table_of([annotation("gloo:all_reduce", at, 5, tid=9) for at in (10, 20)]).collectives) == 2


def test_a_thread_that_is_woken_before_the_end_is_noted_has_waited_until_then():
    events = [
        step(0, 0, 9000),
        *reduce_on_gloo(10, 5000, asynchronous=True),
        op("aten::mm", 12, 8),
        op("aten::mm", 4700, 400),
    ]
    assert waits_us(table_of(events)) == [(20, 4700)]


@pytest.mark.parametrize(("woken", "waits"), [(45_460, [(20, 45_460)]), (45_450, [])])
def test_on_a_crowded_machine_the_end_is_noted_late_by_a_tenth_of_the_wait_at_most(
    woken: float, waits: list[tuple[float, float]]
):
    events = [
        step(0, 0, 90_000),
        *reduce_on_gloo(10, 50_000, asynchronous=True),
        op("aten::mm", 12, 8),
        op("aten::mm", woken, 10_000),
    ]
    assert waits_us(table_of(events)) == waits


def test_the_end_of_a_long_wait_counts_and_not_a_gap_within_what_follows():
    events = [
        step(0, 0, 9000),
        *reduce_on_gloo(10, 5000, asynchronous=True),
        op("aten::mm", 12, 8),
        op("aten::mm", 4700, 250),
        op("aten::mm", 5010, 400),
    ]
    assert waits_us(table_of(events)) == [(20, 4700)]


def test_a_rank_of_which_little_was_recorded_may_have_done_anything():
    """What marks tell is known of it all the same."""
    events = [step(0, 0, 100), annotation("profkit.gc#2", 5, 20), *reduce_on_gloo(60, 90)]
    table = table_of(events, run=Run(is_light=True))
    assert waits_us(table) == waits_us(table_of(events))
    assert {cause for cause, _ in spent_us(table)} == {Cause.GARBAGE, Cause.UNRECORDED}
    assert {cause for cause, _ in spent_us(table_of(events))} >= {Cause.GARBAGE, Cause.UNKNOWN}


def test_a_rank_of_which_the_calls_alone_were_recorded_waits_from_the_last_call_on():
    events = [
        step(0, 0, 9000),
        *reduce_on_gloo(10, 5000, asynchronous=True, values=8),
        *reduce_on_gloo(100, 5100, asynchronous=True, tid=8, external=2),
    ]
    assert waits_us(table_of(events)) == [(102, 5000), (5000, 5100)]


def test_what_is_sent_after_work_of_the_backward_pass_are_gradients():
    """Activations after a forward pass, two tensors of gradients after a backward pass, then activations again though
    the backward pass of another micro-batch came before their forward pass."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    events = [
        step(0, 0, 400),
        op("aten::mm", 0, 20),
        *send_on_gloo(20),
        op(node, 30, 40),
        *send_on_gloo(71),
        *send_on_gloo(75),
        op(node, 90, 40),
        op("aten::mm", 130, 20),
        *send_on_gloo(151),
        op(node, 160, 40),
        op("aten::mul", 200, 2),
        *send_on_gloo(203),
    ]
    assert table_of(events).collectives.after_backward.tolist() == [False, True, True, False, True]


def send_on_gloo(at: float) -> list[Json]:
    call = op("c10d::send", at, 2, dims=[[[4]], [], [], []], concrete=["", "", "0", "0"])
    return [call, saying(annotation("gloo:send", at + 1, 2, tid=9), **{"Input Dims": [[4]], "Input type": ["float"]})]
