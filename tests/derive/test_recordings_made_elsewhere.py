"""For recordings made elsewhere profkit derives the figures in their README, which were measured by other means."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import Intervals, intersection, union
from profkit.derive.timeline.thinned import UNTOUCHED
from profkit.patterns.time.shares import time_shares
from profkit.savings.edits import Edit
from profkit.savings.replay import replay
from profkit.trace.events import Category, Rows
from profkit.trace.kineto.reader import read_kineto
from tests.traces import busy_fraction

FILES = (
    "bert_small_h100.json.gz",
    "bert_small_mi300x.json.gz",
    "ddp_resnet_cpu_bound_a100.json.gz",
    "dlrm_128_ranks_sampled/sampled_rank-0.json.gz",
    "dlrm_128_ranks_sampled/sampled_rank-1.json.gz",
    "mlp_launch_bound_2080ti.json.gz",
    "part_batch_sweep_a100/batch_128.json",
    "part_batch_sweep_a100/batch_2.json",
    "part_batch_sweep_a100/batch_32.json",
    "qwen_prefill_h100.json.gz",
    "recsys_eager_a100.json.gz",
    "recsys_graphed_v100.json.gz",
    "resnet50_workers0_v100.pt.trace.json.gz",
    "resnet50_workers4_v100.pt.trace.json.gz",
    "resnet_healthy_v100.pt.trace.json.gz",
    "sam_amg_baseline_a100.json.gz",
    "sam_amg_optimised_a100.json.gz",
    "vllm_graphs_mi300x.json.gz",
)


@lru_cache(maxsize=4)
def _read(path: Path) -> Facts:
    return Facts(read_kineto(path))


@pytest.fixture
def recording(corpus, request) -> Facts:
    return _read(corpus / "kineto" / request.param)


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recording", names, indirect=True)


def _busy(facts: Facts) -> float:
    """The share of the time between the first and the last work in which the device worked."""
    start, end = facts.trace.events.start_ns[facts.device.work], facts.trace.events.end_ns[facts.device.work]
    return busy_fraction(facts, int(start.min()), int(end.max()))


def _kernels(facts: Facts) -> Rows:
    return facts.trace.rows(Category.KERNEL)


def _communication(facts: Facts) -> Intervals:
    rows = facts.device.work[facts.device.collective]
    return union(facts.trace.events.start_ns[rows], facts.trace.events.end_ns[rows])


def _count_and_ms(facts: Facts, name: str) -> tuple[int, float]:
    rows = np.flatnonzero(facts.trace.named(name))
    return len(rows), facts.trace.events.duration_ns[rows].sum() / 1e6


def _shares(facts: Facts) -> dict[str, float]:
    return {label: time_ns / facts.steps.usual_ns for label, time_ns in time_shares(facts)}


@of(*FILES)
def test_every_recording_is_read_whole_and_its_facts_agree(recording):
    facts = recording
    assert facts.trace.health == ()
    assert facts.device.present
    assert facts.tree.overlapping <= 4  # of frames that end a range and outlast it
    nested = facts.tree.parent >= 0
    parent = facts.tree.parent[nested]
    assert (facts.trace.events.start_ns[nested] >= facts.trace.events.start_ns[parent]).all()
    assert (facts.tree.end_ns[nested] <= facts.tree.end_ns[parent]).all()
    assert (facts.tree.self_ns(facts.trace.events) >= 0).all()
    assert sum(_shares(facts).values()) == pytest.approx(1.0, abs=0.001)


@of(*FILES)
def test_a_replay_without_an_edit_takes_as_long_as_the_recorded_steps(recording):
    facts = Facts(recording.trace)
    vars(facts)["overhead"] = UNTOUCHED  # as recorded, with what the recording added
    result = replay(facts, Edit())
    assert result.edited_ns == result.recorded_ns
    assert result.recorded_ns == pytest.approx(facts.steps.measured_ns, rel=0.03)


@pytest.mark.parametrize(
    ("recording", "busy"),
    [
        ("sam_amg_baseline_a100.json.gz", 0.91),
        ("sam_amg_optimised_a100.json.gz", 0.93),
        ("ddp_resnet_cpu_bound_a100.json.gz", 0.24),
        ("recsys_graphed_v100.json.gz", 0.96),
        ("resnet_healthy_v100.pt.trace.json.gz", 0.98),
        ("dlrm_128_ranks_sampled/sampled_rank-0.json.gz", 0.45),
        ("mlp_launch_bound_2080ti.json.gz", 0.37),
        ("bert_small_h100.json.gz", 0.08),
        ("qwen_prefill_h100.json.gz", 0.92),
        ("vllm_graphs_mi300x.json.gz", 0.998),
        ("part_batch_sweep_a100/batch_2.json", 0.16),
        ("part_batch_sweep_a100/batch_128.json", 0.86),
    ],
    indirect=["recording"],
)
def test_the_device_is_busy_for_the_share_that_was_measured(recording, busy):
    assert _busy(recording) == pytest.approx(busy, abs=0.007)


@pytest.mark.parametrize(
    ("recording", "steps", "source"),
    [
        ("resnet50_workers0_v100.pt.trace.json.gz", 6, "the profiler's step marks"),
        ("mlp_launch_bound_2080ti.json.gz", 39, "the optimizer's steps"),  # 40 steps have 39 spaces between their ends
        ("recsys_graphed_v100.json.gz", 6, "the profiler's step marks"),
        ("sam_amg_baseline_a100.json.gz", 1, "the whole recording, as one step"),
    ],
    indirect=["recording"],
)
def test_the_steps_are_found(recording, steps, source):
    assert (len(recording.steps), recording.steps.source) == (steps, source)


@of("resnet50_workers0_v100.pt.trace.json.gz")
def test_without_workers_the_loader_takes_two_fifths_of_the_time_and_causes_most_idle_time(recording):
    rows = np.flatnonzero(recording.loading & (recording.trace.events.lane == recording.steps.main_lane))
    start_ns, end_ns = recording.steps.window_ns
    assert recording.trace.events.duration_ns[rows].sum() / 1e6 == pytest.approx(416, abs=1)
    assert (end_ns - start_ns) / 1e6 == pytest.approx(1050, abs=1)
    shares = _shares(recording)
    idle = sum(share for label, share in shares.items() if label.startswith("idle"))
    assert shares["idle: waiting for data"] / idle == pytest.approx(0.73, abs=0.05)


@of("resnet50_workers4_v100.pt.trace.json.gz")
def test_with_workers_the_loader_takes_a_hundredth_and_two_steps_stand_out(recording):
    rows = np.flatnonzero(recording.loading & (recording.trace.events.lane == recording.steps.main_lane))
    start_ns, end_ns = recording.steps.window_ns
    assert recording.trace.events.duration_ns[rows].sum() / (end_ns - start_ns) == pytest.approx(0.01, abs=0.002)
    slowest = np.sort(recording.steps.duration_ns / 1e6)[::-1]
    assert slowest[:2] == pytest.approx([182, 164], abs=1)
    assert slowest[2:].mean() == pytest.approx(123, abs=5)


@of("resnet50_workers0_v100.pt.trace.json.gz")
def test_the_launches_of_an_optimizer_are_counted(recording):
    facts = recording
    calls = facts.launches.call[facts.launches.call >= 0]
    inside = facts.tree.under(facts.optimizing)[calls].sum()
    assert inside / len(facts.steps) == pytest.approx(483, abs=2)


@of("ddp_resnet_cpu_bound_a100.json.gz")
def test_the_gaps_of_a_launch_bound_device_are_counted(recording):
    gaps = recording.device.busy.gaps(*recording.steps.window_ns)
    assert ((gaps.end_ns - gaps.start_ns) > 100_000).sum() == pytest.approx(1281, abs=3)


@pytest.mark.parametrize(
    ("recording", "share", "overlapped"),
    [("recsys_eager_a100.json.gz", 0.35, 0.46), ("ddp_resnet_cpu_bound_a100.json.gz", 0.07, 0.16)],
    indirect=["recording"],
)
def test_communication_is_measured_and_its_hidden_share(recording, share, overlapped):
    talking = _communication(recording)
    start_ns, end_ns = recording.steps.window_ns
    assert talking.clipped_to(start_ns, end_ns).total_ns / (end_ns - start_ns) == pytest.approx(share, abs=0.005)
    hidden = intersection(talking, recording.device.computing).total_ns / talking.total_ns
    assert hidden == pytest.approx(overlapped, abs=0.01)


@pytest.mark.parametrize(
    ("recording", "exposed"),
    [
        ("dlrm_128_ranks_sampled/sampled_rank-0.json.gz", 0.275),
        ("dlrm_128_ranks_sampled/sampled_rank-1.json.gz", 0.245),
    ],
    indirect=["recording"],
)
def test_exposed_communication_is_a_share_of_the_step(recording, exposed):
    label = "device: communicating, nothing computed meanwhile"
    assert _shares(recording)[label] == pytest.approx(exposed, abs=0.01)


def test_one_rank_computes_three_tenths_more_than_the_other(corpus):
    ranks = [_read(corpus / "kineto" / name) for name in FILES if name.startswith("dlrm")]
    label = "device: computing"
    zero, one = (_shares(facts)[label] * facts.steps.duration_ns.mean() for facts in ranks)
    assert one / zero == pytest.approx(1.29, abs=0.02)


@pytest.mark.parametrize(
    ("recording", "name", "count", "milliseconds"),
    [
        ("sam_amg_baseline_a100.json.gz", "cudaStreamSynchronize", 275, 335),
        ("recsys_eager_a100.json.gz", "aten::item", 30, 37),
        ("recsys_graphed_v100.json.gz", "aten::item", 30, 207),
    ],
    indirect=["recording"],
)
def test_waits_are_counted_and_measured(recording, name, count, milliseconds):
    assert _count_and_ms(recording, name) == (count, pytest.approx(milliseconds, abs=1))


@of("sam_amg_baseline_a100.json.gz")
def test_waits_of_the_program_are_counted_without_that_of_the_profiler(recording):
    waits, names = recording.waits, recording.trace.events.name_code[recording.waits.rows]
    stream = recording.trace.names.index("cudaStreamSynchronize")
    assert ((names == stream) & ~waits.own).sum() == 275
    assert waits.own.sum() == 1
    start_ns, end_ns = recording.steps.window_ns
    assert (end_ns - start_ns) / 1e6 == pytest.approx(1406, abs=1)


@of("sam_amg_baseline_a100.json.gz")
def test_single_precision_products_take_two_fifths_of_the_kernels_time(recording):
    events, rows = recording.trace.events, _kernels(recording)
    codes = recording.trace.codes_where(lambda name: "sgemm" in name or "s1688gemm" in name)
    share = events.duration_ns[rows[np.isin(events.name_code[rows], codes)]].sum() / events.duration_ns[rows].sum()
    assert share == pytest.approx(0.41, abs=0.005)


@of("recsys_graphed_v100.json.gz")
def test_copies_in_graphs_and_the_spread_of_the_steps_are_measured(recording):
    copies = recording.trace.codes_where(lambda name: "DtoD" in name)
    assert np.isin(recording.trace.events.name_code, copies).sum() == 4645
    assert recording.steps.host_ns.min() / 1e6 == pytest.approx(82, abs=1)
    assert recording.steps.host_ns.max() / 1e6 == pytest.approx(166, abs=1)
    assert np.ptp(recording.steps.duration_ns) / 1e6 == pytest.approx(0, abs=20)  # the device is far steadier


@pytest.mark.parametrize(
    ("recording", "median_us"),
    [("mlp_launch_bound_2080ti.json.gz", 14), ("bert_small_h100.json.gz", 4.6)],
    indirect=["recording"],
)
def test_small_kernels_are_small(recording, median_us):
    rows = _kernels(recording)
    assert np.median(recording.trace.events.duration_ns[rows]) / 1e3 == pytest.approx(median_us, abs=0.1)


@of("qwen_prefill_h100.json.gz")
def test_device_work_without_a_launch_record_is_counted(recording):
    assert recording.launches.unlaunched == 509


@of("vllm_graphs_mi300x.json.gz")
def test_graph_launches_have_many_kernels_and_an_unnamed_device(recording):
    calls, counts = np.unique(recording.launches.call, return_counts=True)
    graphs = np.isin(recording.trace.events.name_code[calls], recording.trace.codes_where(lambda n: "GraphLaunch" in n))
    assert graphs.sum() == 25
    assert counts[graphs].min() > 1
    assert not any(recording.trace.recording.devices)


@of("bert_small_mi300x.json.gz")
def test_rocm_has_device_type_six_and_its_own_names_for_waits(recording):
    events = recording.trace.events
    assert set(np.unique(events.device_type[recording.trace.rows(Category.MEMORY)])) == {0, 6}
    assert (events.device_type[recording.memory.rows] == 6).all()
    names = {recording.trace.name_of(int(row)) for row in recording.waits.rows}
    assert all(name.startswith("hip") for name in names)
    assert "hipMemcpyWithStream" in names


@of("resnet_healthy_v100.pt.trace.json.gz")
def test_times_of_2024_are_exact(recording):
    """If its times were read as floats, 531 slices of this file would seem to overlap."""
    assert recording.tree.overlapping == 0
