"""Why the host waits: each wait has one cause, and each cause is judged by one rule or is no fault."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import read_facts
from profkit.patterns.time.wait_causes import WaitCause, wait_causes
from profkit.rules.data_dependent_shape import counting_operators
from profkit.rules.host_sync_in_step import REMEDIES, waiting_lines
from tests.traces import annotation, facts_of, kernel, memcpy, op, pause, runtime, step

SYNC = "cudaStreamSynchronize"
UNJUDGED = {
    WaitCause.UNRECORDED_WORK: "nobody knows what it costs",
    WaitCause.PYTORCHS_OWN: "nothing that the program's author can change",
    WaitCause.ANOTHER_THREAD: "it holds nobody up",
    WaitCause.NOT_MEASURED: "no figure is taken from there",
    WaitCause.PROFILER: "not there without the profiler",
}
JUDGED = {cause: "host-sync-in-step" for remedy in REMEDIES for cause in remedy.causes}
JUDGED[WaitCause.SIZE_OF_RESULT] = "data-dependent-shape"


def causes(*events, steps: int = 2) -> list[WaitCause]:
    later = [kernel("k", 5, 90), op("aten::mm", 0, 2)]
    facts = facts_of([*(step(n, 100 * n, 100) for n in range(steps)), *later, *events])
    return [WaitCause(cause) for cause in wait_causes(facts)]


def copying(name: str, direction: str, size_bytes: int, start: float = 10):
    return [
        op(name, start, 20),
        op("aten::copy_", start + 1, 18),
        runtime("cudaMemcpyAsync", start + 2, 3, correlation=9),
        memcpy(f"Memcpy {direction}", start + 4, 5, correlation=9, size_bytes=size_bytes),
        runtime(SYNC, start + 6, 10),
    ]


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        (
            [op("aten::item", 10, 20), op("aten::_local_scalar_dense", 11, 18), runtime(SYNC, 12, 15)],
            WaitCause.NUMBER_FROM_DEVICE,
        ),
        (copying("aten::to", "DtoH (Device -> Pinned)", 4), WaitCause.NUMBER_FROM_DEVICE),
        (copying("aten::to", "DtoH (Device -> Pinned)", 17), WaitCause.DATA_FROM_DEVICE),
        (copying("aten::to", "HtoD (Pinned -> Device)", 65_536), WaitCause.SMALL_COPY_TO_DEVICE),
        (copying("aten::to", "HtoD (Pinned -> Device)", 65_537), WaitCause.DATA_TO_DEVICE),
        ([op("aten::nonzero", 10, 20), runtime(SYNC, 12, 15)], WaitCause.SIZE_OF_RESULT),
        ([op("aten::to", 10, 20), runtime(SYNC, 12, 15)], WaitCause.OTHER),
        ([runtime("cudaDeviceSynchronize", 12, 15)], WaitCause.CALL),
        (
            [annotation("Optimizer.step#Adam.step", 5, 40), op("aten::item", 10, 20), runtime(SYNC, 12, 15)],
            WaitCause.PYTORCHS_OWN,
        ),
        ([pause(5, 40), runtime(SYNC, 12, 15)], WaitCause.PYTORCHS_OWN),
        ([runtime(SYNC, 12, 15, tid=9)], WaitCause.ANOTHER_THREAD),
        ([runtime(SYNC, 1_000, 15), op("aten::mm", 2_000, 1)], WaitCause.NOT_MEASURED),
        ([runtime("cudaDeviceSynchronize", 1_000, 15)], WaitCause.PROFILER),
    ],
)
def test_each_wait_has_its_cause(events, cause):
    assert causes(*events) == [cause]


@pytest.mark.parametrize(
    ("length", "worked", "cause"),
    [
        (100, 9, WaitCause.UNRECORDED_WORK),
        (100, 10, WaitCause.CALL),
        (99, 9, WaitCause.CALL),
    ],
    ids=["hardly-any-recorded-work", "recorded-work", "short"],
)
def test_a_long_wait_without_recorded_work_waits_for_something_that_was_not_recorded(length, worked, cause):
    facts = facts_of(
        [
            *(step(n, 1000 * n, 1000) for n in range(2)),
            runtime("cudaDeviceSynchronize", 100, length),
            kernel("k", 90, 10 + worked),
            op("aten::mm", 1500, 2),
        ]
    )
    assert wait_causes(facts).tolist() == [cause]


def test_each_cause_is_judged_by_one_rule_or_listed_as_no_fault():
    assert set(JUDGED) | set(UNJUDGED) == set(WaitCause)
    assert not set(JUDGED) & set(UNJUDGED)
    assert sum(len(remedy.causes) for remedy in REMEDIES) == len(JUDGED) - 1


def test_every_wait_in_every_recording_has_a_cause(corpus):
    paths = [*(corpus / "kineto").glob("*.json*"), *(corpus / "h100" / "runs").glob("*/pitfall.plain.pt.trace.json.gz")]
    assert paths
    for path in paths:
        facts = read_facts(path)
        cause, rows = wait_causes(facts), facts.waits.rows
        for one in set(cause.tolist()) - set(UNJUDGED):
            looked_at = counting_rows(facts) if one == WaitCause.SIZE_OF_RESULT else synchronising_rows(facts)
            assert set(rows[cause == one].tolist()) <= looked_at, (path.name, WaitCause(one))


def synchronising_rows(facts: Facts) -> set[int]:
    return {row for _, lines in waiting_lines(facts) for line in lines for row in line.rows.tolist()}


def counting_rows(facts: Facts) -> set[int]:
    inside = facts.tree.under(facts.trace.mask_of(counting_operators(facts)))
    return set(facts.waits.rows[inside[facts.waits.rows]].tolist())
