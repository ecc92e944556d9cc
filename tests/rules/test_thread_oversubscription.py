"""More threads than CPUs, where threads that go to sleep cost the step something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.thread_oversubscription import thread_oversubscription
from profkit.run.directory import CallSite, Host, LoadSample, Remark, Run
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import THREADS_SET
from profkit.trace.worker_records import WorkerRecord, Workers, WorkerSums
from tests.traces import annotation, facts_of, mark, op, rows_named, step

LOOP = CallSite("train.py", 30, "main", "loss = model(x)")
HERE = CallSite("train.py", 3, "<module>", "torch.set_num_threads(8)")
OTHER = CallSite("train.py", 60, "evaluate", "torch.set_num_threads(1)")
SECOND = 1_000_000_000
Json = dict[str, Any]


def find(facts: Facts) -> list[Suspicion]:
    return list(thread_oversubscription.check(facts))


def steps(long_us: float = 50) -> list[Json]:
    """Steps of 100 µs: one operator of ``long_us``, which may be shared out, and ten of one microsecond."""
    events = [mark(0, 1, 90)]
    for i in range(5):
        at = 100.0 * i
        events += [
            step(i, at, 100),
            op("aten::mm", at + 5, long_us, dims=[[64, 64], [64, 64]], types=["float"] * 2),
            *(op("aten::add", at + 60 + 2 * k, 1) for k in range(10)),
        ]
    return events


def samples(sleeps: float, cpu_share: float = 1.0, count: int = 5) -> tuple[LoadSample, ...]:
    """One a second, with so many sleeps a second."""
    return tuple(LoadSample(i * SECOND, 1, cpu_share, switches=int(i * sleeps)) for i in range(count))


def run_on(cpus: int = 2, threads: int = 8, **more: Any) -> Run:
    return Run(host=Host(cpus, 1, 1 << 30), flags={"torch_threads": threads}, **more)


def facts_about(sleeps: float = 40_000, run: Run | None = None, **more: Any) -> Facts:
    return facts_of(
        more.pop("events", steps()), run=run or run_on(), callsites=(LOOP,), **{"samples": samples(sleeps), **more}
    )


def test_sleeps_are_taken_out_of_the_operators_that_can_be_shared_out():
    """40,000 a second at 10 µs are 0.4 s, a fifth of what two CPUs give: 20 of 100 µs, out of the 50 of `mm`."""
    facts = facts_about()
    (found,) = find(facts)
    measured = rows_named(facts.trace, "aten::mm")[1:]
    assert found.rows.tolist() == measured
    assert found.edit.kept_ns.tolist() == [30_000] * 4
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.2)
    assert found.evidence == {"threads": 8, "cpus": 2, "sleeps_per_step": 4, "sleeps_per_second": 40_000}
    assert "torch.set_num_threads(2)" in found.fix


def test_a_program_that_gets_half_of_the_cpus_loses_twice_the_share():
    facts = facts_about(samples=samples(40_000, cpu_share=0.5))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=1e-4)


@pytest.mark.parametrize(("threads", "count"), [(2, 0), (3, 1)])
def test_as_many_threads_as_cpus_are_no_fault_however_often_they_sleep(threads, count):
    assert len(find(facts_about(run=run_on(threads=threads)))) == count


@pytest.mark.parametrize(("sleeps", "count"), [(11_900, 0), (12_100, 1)])
def test_six_percent_of_the_step_are_the_least(sleeps, count):
    """The model is off by half at most, and three are worth it."""
    assert len(find(facts_about(sleeps))) == count


@pytest.mark.parametrize(("sleeps", "count"), [(1_999, 0), (2_001, 1)])
def test_few_sleeps_of_a_program_that_computes_little_are_waits_for_something_else(sleeps, count):
    assert len(find(facts_about(samples=samples(sleeps, cpu_share=0.05)))) == count


def test_operators_that_are_too_short_to_be_shared_out_have_no_threads_to_wait_for():
    assert find(facts_about(events=steps(long_us=19))) == []


def test_the_time_before_anything_computes_does_not_count():
    """Two idle seconds, then two at work."""
    switches = (0, 10, 20, 40_020, 80_020)
    idle_first = tuple(LoadSample(i * SECOND, 1, 1.0, switches=n) for i, n in enumerate(switches))
    (found,) = find(facts_about(samples=idle_first))
    assert found.evidence["sleeps_per_second"] == 40_000


def test_the_line_that_sets_this_number_is_the_place():
    remarks = (Remark(THREADS_SET, OTHER), Remark(THREADS_SET, HERE))
    (found,) = find(facts_about(run=run_on(remarks=remarks)))
    assert found.location is not None
    assert found.location.line == 3
    assert [place.line for place in found.also] == [30]


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        (["torch.set_num_threads(args.threads)"], 1),
        (["torch.set_num_threads(1)", "torch.set_num_threads(args.threads)"], 2),
        (["torch.set_num_threads(1)", "torch.set_num_threads(num_threads=8)"], 2),
        (["torch.set_num_threads(args.threads)", "torch.set_num_threads(8)"], 2),
        (["torch.set_num_threads(1)  # not (8)"], 30),
        (["print('(8)'); torch.set_num_threads(1)"], 30),
        (["torch.set_num_threads(args.threads)", "torch.set_num_threads(cpus)"], 30),
    ],
)
def test_the_line_that_sets_the_number_is_named_or_the_only_one_that_may(sources: list[str], line: int):
    remarks = tuple(Remark(THREADS_SET, CallSite("train.py", i, "main", source)) for i, source in enumerate(sources, 1))
    (found,) = find(facts_about(run=run_on(remarks=remarks)))
    assert found.location is not None
    assert found.location.line == line


def test_without_such_a_line_it_is_where_the_step_computes():
    (found,) = find(facts_about(run=run_on(remarks=(Remark("evaluation-with-grad", HERE),))))
    assert found.location is not None
    assert found.location.line == 30


def test_the_number_at_the_start_counts_where_no_later_one_is_known():
    unknown = replace(run_on(), host=Host(2, 8, 1 << 30), flags={})
    assert len(find(facts_about(run=unknown))) == 1


def workers(threads: int) -> Workers:
    sums = tuple(WorkerSums(n, *[n] * 8, threads=threads) for n in (1, 2))
    return Workers((), tuple(WorkerRecord(0, number, 2, sums) for number in (0, 1)))


@pytest.mark.parametrize(("threads", "count"), [(1, 0), (2, 1)])
def test_workers_count_together_where_each_uses_several_threads(threads, count):
    found = find(facts_about(run=run_on(threads=1, cpus=3), workers=workers(threads)))
    assert [suspicion.evidence["threads"] for suspicion in found] == [threads] * count


def test_the_experiment_runs_the_operators_on_both_numbers():
    (found,) = find(facts_about())
    assert found.trial is not None
    experiment = found.trial.experiment
    assert (experiment.kind, experiment.count, experiment.to) == ("fewer-threads", 8, "2")
    assert [(case.operator, case.shapes) for case in experiment.cases] == [("mm", ((64, 64), (64, 64)))]
    assert found.trial.edit_of(0.25).kept_ns.tolist() == [12_500] * 4


def test_loading_is_left_out():
    loading = [
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100.0 * i + 4, 52) for i in range(5)
    ]
    assert find(facts_about(events=[*steps(), *loading])) == []


def test_what_was_not_counted_cannot_be_judged():
    with pytest.raises(CannotLook, match="CPUs and threads were not recorded"):
        find(facts_of(steps()))
    with pytest.raises(CannotLook, match="ran too short"):
        find(facts_about(samples=samples(40_000, count=2)))
    with pytest.raises(CannotLook, match="does not count"):
        find(facts_about(samples=tuple(LoadSample(i, 1, 1.0) for i in range(9))))
    assert missing_needs(facts_of([annotation("x", 0, 1)]), thread_oversubscription.needs) == [Need.OPERATORS]


def test_a_negative_number_of_threads_is_no_number():
    assert find(facts_about(run=Run(host=Host(2, -1, 1 << 30)))) == []
