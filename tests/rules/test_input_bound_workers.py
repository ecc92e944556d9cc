"""input-bound: how many workers keep up."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from profkit.findings.values import Kind
from profkit.rules.base import CannotLook, Suspicion
from profkit.run.directory import CallSite, Feeding, LoadSample
from profkit.savings.simulate import predict_saving
from profkit.trace.worker_records import WorkerRecord, Workers, WorkerSums
from tests.rules.loading import SINGLE, batches, find, on_device, run_on
from tests.traces import annotation, facts_of, op, stacks_of, step

pytestmark = pytest.mark.usefixtures("cheap_handing_over")

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_workers_that_cannot_keep_up_need_company():
    """Two workers deliver a batch every 100 µs, so a batch takes one 200: a step of 60 needs four."""
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run_on(cpus=16, workers=2))
    (found,) = find(facts)
    assert "2 workers cannot keep up" in found.message
    assert "num_workers=4" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)


SITES = (CallSite("/w/data.py", 4, "Set.__getitem__", "c = copy.deepcopy(x)"), CallSite("/w/data.py", 5, "f"))


def sampled(shares: dict[tuple[int, ...], int], cpus: int) -> list[Suspicion]:
    """Of a step of 100 µs, 40 wait for two workers, which take 200 for a batch."""
    stacks = stacks_of(SITES, shares, kind="worker", batch_from=0)
    return find(facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run_on(cpus, workers=2), stacks=stacks))


def test_a_line_that_makes_most_of_a_batch_in_workers_comes_before_more_of_them():
    first, second = sampled({(0,): 70, (1,): 20}, cpus=16)
    assert first.location is not None
    assert (first.location.line, first.kind) == (4, Kind.OPPORTUNITY)
    assert "because 2 workers cannot keep up. 70 % of a batch goes to `Set.__getitem__`, which calls" in first.message
    assert "shorter. 4 workers would make the step 40 % shorter." in first.message
    assert second.kind is None


def test_workers_that_keep_up_without_that_line_leave_nothing_to_wait_for():
    """Two workers keep up with a step of 60 µs if a batch takes 120: without 60 % of 200 it does."""
    first, *_ = sampled({(0,): 60}, cpus=2)
    assert first.edit is not None
    assert first.edit.kept_ns.tolist() == [0] * 4


@pytest.mark.parametrize(("percent", "reported"), [(50, 1), (49, 0)])
def test_where_workers_share_all_cpus_only_a_cheaper_line_helps(percent, reported):
    stacks = stacks_of(SITES, {(0,): percent}, kind="worker", batch_from=0)
    events = batches([40] * 4, WORKERS)
    found = find(facts_of(events, run=run_on(cpus=2, threads=2, workers=2), stacks=stacks))
    assert len(found) == reported
    assert all("More workers would gain nothing here." in one.message for one in found)


def test_a_line_that_makes_little_of_a_batch_leaves_the_workers_to_be_counted():
    (found,) = sampled({(0,): 49, (1,): 49}, cpus=16)
    assert found.kind is None


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
    """Epochs of three batches: the request that ends one takes 50 µs, the next one's first 400; a seed lies between."""
    events, now = [], 0.0
    for i in range(9):
        begin = now
        if i % 3 == 0:
            events += [
                annotation(WORKERS, now, 50),
                op("aten::random_", now + 52, 1),
                annotation(WORKERS, now + 60, 400),
            ]
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
    noise = [
        part
        for i in range(4)
        for part in (op("aten::randint", 125 + 100 * i, 5), op("aten::random_", 126 + 100 * i, 3))
    ]
    assert len(find(facts_of([*events, *noise], run=run_on(16, workers=2)))) == 1


def test_a_single_hiccup_is_no_rate():
    assert find(facts_of(batches([0.5, 0.5, 90, 0.5, 0.5], WORKERS), run=run_on(16, workers=2))) == []


def test_indexing_a_tensor_in_memory_sample_by_sample_is_left_to_its_own_rule():
    picks = [op("aten::select", 0.5 * i, 0.3) for i in range(64)]  # 19 of 40 µs
    assert find(facts_of(batches([40] * 4, extra=picks), run=run_on(8))) == []
    assert len(find(facts_of(batches([40] * 4, extra=picks[:-1]), run=run_on(8)))) == 1


def test_a_loop_on_another_thread_holds_nobody_up():
    elsewhere = [{**event, "tid": 2} if event["name"] == SINGLE else event for event in batches([40] * 4)]
    with pytest.raises(CannotLook, match="no DataLoader"):
        find(facts_of(elsewhere, run=run_on(8)))


def accounts(fetch_us: float, collate_us: float = 0, cpu: float = 1.0, workers: int = 1) -> Workers:
    """Each worker prepared four batches after its first, with the share ``cpu`` of the time on a CPU."""
    batch = int((fetch_us + collate_us) * 1000)
    sums = tuple(
        WorkerSums(
            n,
            int(n * fetch_us * 1000),
            int(n * collate_us * 1000),
            0,
            0,
            int(n * batch * cpu),
            0,
            n * batch,
            int(n * batch * cpu),
        )
        for n in (1, 5)
    )
    return Workers((), tuple(WorkerRecord(0, number, workers, sums) for number in range(workers)))


def test_the_workers_account_says_how_many_keep_up():
    """A batch takes 130 µs, though the two workers hand one over only every 100: 3 for steps of 60."""
    run = run_on(cpus=16, workers=2)
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run, workers=accounts(120, 10, workers=2))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 3
    assert "num_workers=3" in found.fix
    assert "120 µs fetching it and 10.0 µs collating it" in found.fix
    assert {name: found.evidence[name] for name in ("batch_fetch_ns", "batch_cpu_ns", "batch_blocked_ns")} == {
        "batch_fetch_ns": 120_000,
        "batch_cpu_ns": 130_000,
        "batch_blocked_ns": 0,
    }


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
    assert found.evidence["workers_needed"] == 5  # 200 µs a step, of which 40 are no waiting


def test_without_a_gpu_more_workers_help_where_they_are_blocked_and_not_computing():
    """A batch takes 200 µs, 20 of them on a CPU. Four keep up, though there are two CPUs and the model is on both: it
    waits for what they compute."""
    run = run_on(cpus=2, threads=2, workers=1)
    facts = facts_of(batches([140] * 4, WORKERS), run=run, workers=accounts(200, cpu=0.1))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 4
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.6)  # 60 + 20 of 200 µs remain


def test_without_a_gpu_as_many_workers_as_can_be_are_silent_whatever_they_measured():
    run = run_on(cpus=2, threads=2, workers=2)
    assert find(facts_of(batches([140] * 4, WORKERS), run=run, workers=accounts(500, workers=2))) == []


def test_workers_that_are_many_enough_are_told_so():
    """By their account 100 µs a batch, and two of them: one every 50, where the step takes 60."""
    run = run_on(cpus=16, workers=2)
    facts = facts_of(on_device([40] * 4, busy_us=30, name=WORKERS), run=run, workers=accounts(100, workers=2))
    (found,) = find(facts)
    assert "there are enough workers" in found.fix
    assert "num_workers" not in found.fix


def test_the_account_of_another_loader_says_nothing_of_the_main_process():
    facts = facts_of(batches([40] * 4), run=run_on(cpus=8), workers=accounts(5000))
    (found,) = find(facts)
    assert found.evidence["workers_needed"] == 1
    assert "batch_cpu_ns" not in found.evidence


def test_a_batch_that_is_waited_for_longer_than_it_takes_to_make_is_better_made_without_workers():
    """20 µs to make, and a wait of 40: the worker that has it cannot be the reason."""
    facts = facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2), workers=accounts(15, 5))
    (found,) = find(facts)
    assert "num_workers=0" in found.fix
    assert found.evidence == {"wait_ns_per_step": 40_000, "batch_made_ns": 20_000, "workers": 2}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2)  # 20 of 100 µs


@pytest.mark.parametrize(("shortest_us", "reported"), [(20, 0), (30, 1)])
def test_one_request_that_waits_no_longer_than_making_takes_ends_it(shortest_us, reported):
    """The other waits are those of a busy machine, and what they are longer by is not given back."""
    facts = facts_of(
        batches([60, 60, shortest_us, 60], WORKERS), run=run_on(cpus=2, threads=2, workers=2), workers=accounts(15, 5)
    )
    given = [one for one in find(facts) if "num_workers=0" in one.fix]
    assert len(given) == reported
    assert all(predict_saving(facts, one.edit).fraction == pytest.approx(10 / 112.5, abs=0.001) for one in given)


@pytest.mark.parametrize(("queued", "reported"), [(0.0, 0), (0.4, 0), (0.6, 1)])
def test_a_wait_for_a_cpu_is_no_making(queued, reported):
    """A batch takes 80 µs in all, and requests wait 40."""
    busy = accounts(60, 20)
    sums = tuple(replace(one, queued_ns=int(queued * 80_000 * one.batches)) for one in busy.records[0].sums)
    facts = facts_of(
        batches([40] * 4, WORKERS),
        run=run_on(cpus=2, threads=2, workers=2),
        workers=Workers((), (replace(busy.records[0], sums=sums),)),
    )
    assert sum("num_workers=0" in found.fix for found in find(facts)) == reported


def test_workers_that_cannot_keep_up_are_not_sent_away():
    facts = facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2), workers=accounts(200))
    assert all("num_workers=0" not in found.fix for found in find(facts))


@pytest.mark.parametrize(("making_us", "reported"), [(37.5, 0), (36.5, 1)])
def test_handing_over_has_to_cost_three_percent(making_us, reported):
    facts = facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2), workers=accounts(making_us))
    assert sum("num_workers=0" in found.fix for found in find(facts)) == reported


def test_the_slowest_loader_counts_where_the_one_that_was_asked_is_unknown():
    cheap, dear = accounts(5), accounts(90)
    records = (*cheap.records, *(replace(record, loader=1) for record in dear.records))
    facts = facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2), workers=Workers((), records))
    assert all("num_workers=0" not in found.fix for found in find(facts))


def test_without_an_account_nobody_knows_what_making_takes():
    assert find(facts_of(batches([40] * 4, WORKERS), run=run_on(cpus=2, threads=2, workers=2))) == []


def crowded(
    others_cpus: float, computing: float = 0.5, shares: dict[tuple[int, ...], int] | None = None
) -> list[Suspicion]:
    """Steps of 10 ms for a batch and 90 for the model, of which it waits 45 for one of two CPUs. Two workers keep
    1.4 of them busy, and take 140 ms of CPU time for a batch."""
    one, five = (WorkerSums(n, *(n * ms * 10**6 for ms in (120, 20, 0, 0, 140, 0, 200, 140))) for n in (1, 5))
    workers = Workers((), tuple(WorkerRecord(0, number, 2, (one, five)) for number in range(2)))
    events = [
        {**event, "ts": 1000 * event["ts"], "dur": 1000 * event["dur"]} for event in batches([10] * 4, WORKERS, 90)
    ]
    run = dataclasses.replace(
        run_on(cpus=2, workers=2, feeding=Feeding(0.0, computing)), measured_step_crowded_ns=(45_000_000,) * 4
    )
    samples = tuple(LoadSample(i, 0, 0.5, others_cpus=others_cpus) for i in range(3))
    stacks = stacks_of(SITES, shares or {}, kind="worker", batch_from=0) if shares else None
    return find(facts_of(events, run=run, workers=workers, samples=samples, stacks=stacks))


def test_workers_that_take_the_cpus_from_the_model_cost_the_wait_for_a_cpu_too():
    """With batches that cost nothing, 55 of 100 ms would go."""
    (found,) = crowded(others_cpus=1.4)
    assert found.message == (
        "Each step waits 10.0 ms for its batch and 45.0 ms for a CPU, because 2 workers and the model share 2 CPUs. "
        "With batches that cost nothing the step would be 55 % shorter."
    )
    assert found.evidence["wait_for_cpu_ns_per_step"] == 45_000_000


def test_a_line_that_makes_most_of_a_batch_takes_its_part_of_the_cpus_with_it():
    """Without 90 % of 140 ms, the model's 45 and 14 for a batch share two CPUs: nothing is left to wait for."""
    (found,) = crowded(1.4, shares={(0,): 90})
    assert "90 % of a batch goes to `Set.__getitem__`" in found.message
    assert "at most 55 % shorter" in found.message


@pytest.mark.parametrize(
    ("others", "computing", "waits_ns"),
    [(1.4, 0.5, [45_000_000]), (1.4, 1.0, []), (2.8, 0.5, [22_500_000]), (14.0, 0.5, [])],
)
def test_only_what_the_workers_take_in_unrecorded_steps_counts(others, computing, waits_ns):
    """The model that computes all the time waits for no CPU. Of twice as much the workers have half, of ten times as
    much a tenth: then it is the batch that is waited for."""
    found = crowded(others, computing)
    assert [one.evidence["wait_for_cpu_ns_per_step"] for one in found] == waits_ns
