"""Copies from pinned memory that kernels wait for, and copies that delay nothing or could not be sent earlier."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.exposed_transfer import exposed_transfer
from profkit.savings.replay import replay
from tests.rules.transferring import PAGEABLE, PINNED
from tests.traces import annotation, facts_of, kernel, mark, memcpy, op, runtime, step

Json = dict[str, Any]
MB = 1_000_000
HOST_US = 100
"""How long the host takes to launch a step. It runs ahead of the device."""


def find(facts: Facts) -> list[Suspicion]:
    return list(exposed_transfer.check(facts))


def stepped(
    copied: float = 80,
    computed: float = 100,
    *,
    size: int = MB,
    kind: str = PINNED,
    stream: int = 7,
    steps: int = 4,
    beside: tuple[Json, ...] = (),
) -> list[Json]:
    """Steps that send a batch and launch a kernel after it. On another stream the copy runs beside the kernels."""
    behind = copied if stream == 7 else 0
    found = []
    for n in range(steps):
        host, device = HOST_US * n, (behind + computed) * n
        found += [
            step(n, host, HOST_US),
            op("aten::to", host + 10, 12),
            op("aten::copy_", host + 11, 10),
            runtime("cudaMemcpyAsync", host + 12, 5, correlation=2 * n + 1),
            op("aten::mul", host + 30, 10),
            runtime("cudaLaunchKernel", host + 31, 5, correlation=2 * n + 2),
            memcpy(f"Memcpy {kind}", device + 20, copied, correlation=2 * n + 1, size_bytes=size, stream=stream),
            kernel("mul", device + 40 + behind, computed - 20, correlation=2 * n + 2),
            *({**event, "ts": event["ts"] + host} for event in beside),
        ]
    return found


def test_a_copy_that_kernels_in_its_stream_wait_for_is_saved():
    facts = facts_of(stepped())
    (found,) = find(facts)
    assert found.edit is not None
    assert found.edit.work_kept_ns.tolist() == [0] * 4
    assert replay(facts, found.edit).fraction == pytest.approx(80 / 180, abs=0.02)
    assert found.evidence["bytes_per_step"] == MB
    assert found.evidence["copying_ns_per_step"] == pytest.approx(80_000, rel=0.05)  # the first step has a head start
    assert found.message.startswith("1.00 MB a step is copied to the device from pinned memory in ")


def test_the_saving_is_limited_by_the_time_the_link_needs():
    """Copies take 150 µs and other work 30 µs, so the link needs 150 of 180 µs no matter when the copies are sent."""
    facts = facts_of(stepped(150, 30))
    (found,) = find(facts)
    assert replay(facts, found.edit).fraction == pytest.approx(30 / 180, abs=0.07)


@pytest.mark.parametrize(("copied", "reported"), [(18, 1), (12, 0)])
def test_savings_below_a_tenth_of_the_step_are_silent(copied, reported):
    assert len(find(facts_of(stepped(copied, 120)))) == reported


@pytest.mark.parametrize(("size", "reported"), [(65_537, 1), (65_536, 0)])
def test_copies_of_at_most_64_kibibytes_are_silent(size, reported):
    assert len(find(facts_of(stepped(size=size)))) == reported


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(stepped(stream=9), id="on a stream of their own"),
        pytest.param(stepped(kind=PAGEABLE), id="from memory that is not pinned"),
        pytest.param(stepped(20, 60), id="behind a host that takes longer than the device"),
        pytest.param(stepped(beside=(runtime("cudaStreamSynchronize", 17, 3),)), id="the host waits for them"),
        pytest.param(stepped(steps=1), id="in a recording of one step"),
    ],
)
def test_copies_that_delay_no_kernel_or_belong_to_another_rule_are_silent(events):
    assert find(facts_of(events)) == []


READ = (op("aten::item", 50, 20), op("aten::_local_scalar_dense", 51, 18), runtime("cudaStreamSynchronize", 55, 10))


def test_a_copy_in_a_step_that_also_reads_a_result_is_silent():
    assert find(facts_of(stepped(beside=READ))) == []


def test_batches_of_a_loader_are_reported_even_if_a_result_is_read():
    loading = annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 2, 4)
    assert len(find(facts_of(stepped(beside=(*READ, loading))))) == 1


def test_the_reported_line_makes_the_copy():
    located = [
        step(0, 0, 100),
        mark(2, 9, 15),
        op("aten::to", 10, 12),
        op("aten::copy_", 11, 10),
        mark(3, 28, 15),
        op("aten::mul", 30, 10),
    ]
    later = [{**event, "ts": event["ts"] + 100} for event in stepped()]
    facts = facts_of([*located, *later])
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {2}


def test_without_runtime_calls_it_cannot_look():
    events = [event for event in stepped() if event["cat"] != "cuda_runtime"]
    with pytest.raises(CannotLook, match="does not say which calls copy"):
        find(facts_of(events))


def test_without_a_gpu_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 10, 20)])
    assert Need.DEVICE in missing_needs(facts, exposed_transfer.needs)
