"""Waiting for batches: only where a ready batch would make the step shorter, and only as far as there are CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit.comparing.step_times import compare_step_times
from profkit.diagnosing import read_facts
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.input_bound import input_bound
from profkit.run import HandingOver, Host, LoaderUse, Run
from profkit.savings.simulate import predict_saving
from profkit.trace.workers import WorkerRecord, Workers, WorkerSums
from tests import traces
from tests.traces import annotation, kernel, mark, memcpy, op, rows_named, runtime, step

Json = dict[str, Any]
SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def facts_of(events, run: Run | None = None, tensor_ns: int = 0, page_ns: int = 250, **more):
    """The facts, of a machine on which handing over is cheap: times below are far shorter than those of programs."""
    return traces.facts_of(events, run=replace(run or Run(), handing_over=HandingOver(tensor_ns, page_ns)), **more)


def find(facts) -> list[Suspicion]:
    return list(input_bound.check(facts))


def batches(waits_us: list[float], name: str = SINGLE, work_us: float = 60,
            extra: list[Json] | None = None) -> list[Json]:  # fmt: skip
    """Steps that each wait for a batch and then compute on the CPU for ``work_us``; ``extra`` lies in each wait."""
    events, now = [], 0.0
    for i, wait in enumerate(waits_us):
        events += [step(i, now, wait + work_us), annotation(name, now, wait), op("aten::mm", now + wait, work_us)]
        events += [{**event, "ts": event["ts"] + now} for event in extra or []]
        now += wait + work_us
    return events


def run_on(cpus: int, threads: int = 1, workers: int | None = None) -> Run:
    loaders = () if workers is None else (LoaderUse(workers, 8, pin_memory=False, persistent_workers=False),)
    return Run(host=Host(cpus, threads, 8 << 30), loaders=loaders)


def on_device(waits_us: list[float], busy_us: float, name: str = SINGLE) -> list[Json]:
    """Steps of ``wait + 60`` us whose kernel, launched after the wait, keeps the device busy for ``busy_us``; before
    the first of them the device is at the work of a step that was not recorded."""
    before = [op("aten::mm", 0, 10), runtime("cudaLaunchKernel", 1, 2, correlation=99),
              kernel("k", 5, 60 + busy_us, correlation=99)]  # fmt: skip
    events, now = before, 60.0
    for i, wait in enumerate(waits_us):
        launch = now + wait
        events += [
            step(i, now, wait + 60), annotation(name, now, wait), op("aten::mm", launch, 10),
            runtime("cudaLaunchKernel", launch + 1, 2, correlation=i + 1),
            kernel("k", launch + 5, busy_us, correlation=i + 1),
        ]  # fmt: skip
        now = launch + 60
    return events


def test_a_batch_prepared_by_the_main_process_is_worth_its_time_where_cpus_are_free():
    facts = facts_of(batches([40] * 4), run=run_on(cpus=8))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, SINGLE)
    assert found.evidence == {
        "wait_ns_per_step": 40_000, "step_with_data_ready_ns": 60_000, "workers": 0, "workers_needed": 1,
    }  # fmt: skip
    assert predict_saving(facts, found.edit).fraction == 0.4
    assert "num_workers=1" in found.fix
    assert "main process" in found.message


def test_the_line_is_that_of_the_loop():
    located = [step(0, 0, 100), mark(4, 0, 41), annotation(SINGLE, 0, 40), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    facts = facts_of([*located, *later], run=run_on(8))
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {4}


def test_workers_are_as_many_as_keep_up_with_the_step():
    (found,) = find(facts_of(batches([200] * 4), run=run_on(cpus=8)))
    assert found.evidence["workers_needed"] == 4  # 200 us for a batch, 60 for the rest: 3.3


def test_without_a_gpu_a_model_that_uses_all_cpus_shares_them_with_the_workers():
    """Of 40 us of loading, 40 / 2 stay: there is only so much CPU time."""
    facts = facts_of(batches([40] * 4), run=run_on(cpus=2, threads=2))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.2


def test_one_cpu_alone_gives_nothing_to_gain():
    assert find(facts_of(batches([40] * 4), run=run_on(cpus=1))) == []


def test_few_cpus_bound_what_workers_can_do():
    """A batch of 200 us on two CPUs beside a model on one: (200 + 60) / 2 = 130 of 260 us remain."""
    facts = facts_of(batches([200] * 4), run=run_on(cpus=2))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.5
    assert found.evidence["workers_needed"] == 2


def test_a_batch_from_a_worker_is_given_page_by_page():
    """Two samples of 64 KiB: 32 pages at 250 ns are 8 us of the 40, at 500 ns twice as much."""
    samples = [op("aten::stack", 1, 5, dims=[[[64, 256], [64, 256]], []], types=["TensorList", "Scalar"])]
    for page_ns, saved in ((250, 0.32), (500, 0.24)):
        facts = facts_of(batches([40] * 4, extra=samples), run=run_on(cpus=8), page_ns=page_ns)
        (found,) = find(facts)
        assert predict_saving(facts, found.edit).fraction == saved


@pytest.mark.parametrize(("stacks", "saved"), [(0, 0.32), (1, 0.32), (2, 0.32), (4, 0.28)])
def test_each_tensor_of_a_batch_is_asked_for_by_itself(stacks, saved):
    """At 2 us each: two of them and two for the queues are 8 us of the 40, four of them 12."""
    samples = [op("aten::stack", 2 * i, 1) for i in range(stacks)]
    facts = facts_of(batches([40] * 4, extra=samples), run=run_on(cpus=8), tensor_ns=2000)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == saved


def test_batches_that_cost_no_more_than_being_handed_over_are_silent():
    assert find(facts_of(batches([40] * 4), run=run_on(cpus=8), tensor_ns=10_000)) == []
    assert len(find(facts_of(batches([40] * 4), run=run_on(cpus=8), tensor_ns=9_000))) == 1


def test_where_nothing_was_measured_a_batch_of_two_tensors_costs_1_2_ms():
    def found(wait_us: float) -> list[Suspicion]:
        return find(traces.facts_of(batches([wait_us] * 4, work_us=1000), run=run_on(cpus=8)))

    assert found(1200) == []
    assert len(found(1300)) == 1


def test_what_is_sent_to_the_device_tells_the_size_of_a_batch():
    sent = [memcpy("Memcpy HtoD (Pageable -> Device)", 41, 2, size_bytes=4 * 4096, correlation=7)]
    facts = facts_of([*batches([40] * 4, extra=[runtime("cudaMemcpyAsync", 40, 1, correlation=7)]), *sent])
    (found,) = find(facts)
    assert found.edit.kept_ns.tolist() == [250] * 4  # one of the four batches was sent: a page a step


def test_an_unknown_host_bounds_nothing():
    facts = facts_of(batches([40] * 4))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.4


@pytest.mark.parametrize(("wait", "reported"), [(1.8, 0), (2.0, 1)])
def test_three_percent_is_the_least_gain(wait, reported):
    assert len(find(facts_of(batches([wait] * 4), run=run_on(8)))) == reported


def test_a_wait_that_the_device_works_through_is_silent():
    """The device needs 99 us of each step of 100: a ready batch would not make it faster."""
    assert find(facts_of(on_device([40] * 4, busy_us=99))) == []


def test_a_wait_in_which_the_device_idles_is_reported_with_what_it_costs():
    facts = facts_of(on_device([40] * 4, busy_us=30))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)
    assert "the device idles" in found.message
    assert "pin_memory=True" in found.fix


def test_workers_that_cannot_keep_up_need_company():
    """Two workers deliver a batch every 100 us, so a batch takes one 200: a step of 60 needs four."""
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run_on(cpus=16, workers=2))
    (found,) = find(facts)
    assert "2 workers cannot keep up" in found.message
    assert "num_workers=4" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)


def test_nobody_knows_how_many_workers_a_foreign_recording_had():
    (found,) = find(facts_of(on_device([40] * 4, busy_us=30, name=WORKERS)))
    assert "more workers" in found.fix
    assert "num_workers" not in found.fix


def test_as_many_workers_as_cpus_ask_for_cheaper_samples():
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run_on(cpus=2, workers=2))
    (found,) = find(facts)
    assert "__getitem__ cheaper" in found.fix


def test_without_a_gpu_workers_that_already_share_all_cpus_are_silent():
    assert find(facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2))) == []
    assert find(facts_of(batches([40] * 4, WORKERS))) == []


def test_waiting_for_workers_to_stop_and_start_is_left_out():
    """Epochs of three batches: the request that ends one takes 50 us, the next one's first 400; a seed lies between."""
    events, now = [], 0.0
    for i in range(9):
        begin = now
        if i % 3 == 0:
            events += [annotation(WORKERS, now, 50), op("aten::random_", now + 52, 1),
                       annotation(WORKERS, now + 60, 400)]  # fmt: skip
            now += 460
        else:
            events += [annotation(WORKERS, now, 0.5)]
            now += 0.5
        events += [op("aten::mm", now, 60), step(i, begin, now + 60 - begin)]
        now += 60
    assert find(facts_of(events, run=run_on(16, workers=4))) == []


def test_numbers_drawn_inside_a_request_begin_no_iterator():
    drawing = [op("aten::random_", 1, 1)]
    facts = facts_of(batches([40] * 4, WORKERS, extra=drawing), run=run_on(16, workers=2))
    assert len(find(facts)) == 1


def test_a_loader_that_few_steps_ask_is_silent():
    events = [event for event in batches([40] * 5) if event["name"] != SINGLE or event["ts"] < 100]
    assert find(facts_of(events, run=run_on(8))) == []


def test_a_random_tensor_of_the_programs_own_begins_no_iterator():
    events = on_device([40] * 4, busy_us=30, name=WORKERS)
    noise = [part for i in range(4) for part in (
        op("aten::randint", 125 + 100 * i, 5), op("aten::random_", 126 + 100 * i, 3))]  # fmt: skip
    assert len(find(facts_of([*events, *noise], run=run_on(16, workers=2)))) == 1


def test_a_single_hiccup_is_no_rate():
    assert find(facts_of(batches([0.5, 0.5, 90, 0.5, 0.5], WORKERS), run=run_on(16, workers=2))) == []


def test_indexing_a_tensor_in_memory_sample_by_sample_is_left_to_its_own_rule():
    picks = [op("aten::select", 0.5 * i, 0.3) for i in range(64)]  # 19 of 40 us
    assert find(facts_of(batches([40] * 4, extra=picks), run=run_on(8))) == []
    assert len(find(facts_of(batches([40] * 4, extra=picks[:-1]), run=run_on(8)))) == 1


def test_a_loop_on_another_thread_holds_nobody_up():
    elsewhere = [{**event, "tid": 2} if event["name"] == SINGLE else event for event in batches([40] * 4)]
    with pytest.raises(CannotLook, match="no DataLoader"):
        find(facts_of(elsewhere, run=run_on(8)))


# What the workers measured


def accounts(fetch_us: float, collate_us: float = 0, cpu: float = 1.0, workers: int = 1) -> Workers:
    """Each worker prepared four batches after its first, with the share ``cpu`` of the time on a CPU."""
    batch = int((fetch_us + collate_us) * 1000)
    sums = tuple(
        WorkerSums(n, int(n * fetch_us * 1000), int(n * collate_us * 1000), 0, 0, int(n * batch * cpu), 0, n * batch,
                   int(n * batch * cpu)) for n in (1, 5)
    )  # fmt: skip
    return Workers((), tuple(WorkerRecord(0, number, workers, sums) for number in range(workers)))


def test_the_workers_account_says_how_many_keep_up():
    """A batch takes 130 us, though the two workers hand one over only every 100: 3 for steps of 60."""
    run = run_on(cpus=16, workers=2)
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run, workers=accounts(120, 10, workers=2))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 3
    assert "num_workers=3" in found.fix
    assert "120 us fetching it and 10.0 us collating it" in found.fix
    assert {name: found.evidence[name] for name in ("batch_fetch_ns", "batch_cpu_ns", "batch_blocked_ns")} == {
        "batch_fetch_ns": 120_000, "batch_cpu_ns": 130_000, "batch_blocked_ns": 0,
    }  # fmt: skip


def test_the_cpus_bound_the_number_that_the_account_gives():
    run = run_on(cpus=4, workers=2)
    facts = facts_of(on_device([400] * 4, busy_us=30, name=WORKERS), run=run, workers=accounts(900, workers=2))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 4  # fifteen would keep up


def test_a_step_of_two_batches_needs_twice_the_workers():
    second = [annotation(WORKERS, 20, 20)]
    events = batches([20] * 4, WORKERS, work_us=60, extra=second)
    facts = facts_of(events, run=run_on(cpus=16, workers=1), workers=accounts(100))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 5  # 200 us a step, of which 40 are no waiting


def test_without_a_gpu_more_workers_help_where_they_are_blocked_and_not_computing():
    """A batch takes 200 us, 20 of them on a CPU. Two CPUs, the model on both: four would keep up, there are two."""
    run = run_on(cpus=2, threads=2, workers=1)
    facts = facts_of(batches([140] * 4, WORKERS), run=run, workers=accounts(200, cpu=0.1))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.5)  # 200 / 2 of 200 us remain


def test_without_a_gpu_as_many_workers_as_can_be_are_silent_whatever_they_measured():
    run = run_on(cpus=2, threads=2, workers=2)
    assert find(facts_of(batches([140] * 4, WORKERS), run=run, workers=accounts(500, workers=2))) == []


def test_workers_that_are_many_enough_are_told_so():
    """By their account 100 us a batch, and two of them: one every 50, where the step takes 60."""
    run = run_on(cpus=16, workers=2)
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run, workers=accounts(100, workers=2))
    (found,) = find(facts)
    assert "many enough" in found.fix
    assert "num_workers" not in found.fix


def test_the_account_of_another_loader_says_nothing_of_the_main_process():
    facts = facts_of(batches([40] * 4), run=run_on(cpus=8), workers=accounts(5000))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 1
    assert "batch_cpu_ns" not in found.evidence


# Recordings made elsewhere


def test_resnet_without_workers_waits_a_third_of_its_step(corpus):
    facts = read_facts(corpus / "kineto" / "resnet50_workers0_v100.pt.trace.json.gz")
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.34, abs=0.02)


def test_the_saving_of_resnets_workers_is_that_of_the_recording_with_four_of_them(corpus):
    """Within 15 % of the difference between the step times of both as `profkit compare` states them."""
    without, four = (read_facts(corpus / "kineto" / f"resnet50_workers{n}_v100.pt.trace.json.gz") for n in (0, 4))
    (found,) = find(without)
    predicted_ns = predict_saving(without, found.edit).time_ns_per_step
    steps = [[facts.steps.duration_ns[facts.steps.measured].tolist()] for facts in (without, four)]
    seen = compare_step_times(*steps)
    assert predicted_ns == pytest.approx(seen.before_ns - seen.after_ns, rel=0.15)


@pytest.mark.parametrize(
    "name", ["resnet50_workers4_v100.pt.trace.json.gz", "recsys_eager_a100.json.gz", "recsys_graphed_v100.json.gz"]
)
def test_loaders_that_keep_up_stay_quiet(corpus, name):
    assert find(read_facts(corpus / "kineto" / name)) == []
