"""For recordings made elsewhere profkit finds the faults that their README lists, the largest first."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import MEDIUM_FROM, Diagnosis, Finding, Severity, notable
from tests.cross_table.recordings import expected_elsewhere

EXPECTED = expected_elsewhere()
IDLE_OR_BUSY = {
    "sam_amg_baseline_a100.json.gz": 0.41,
    "ddp_resnet_cpu_bound_a100.json.gz": 0.76,
    "mlp_launch_bound_2080ti.json.gz": 0.63,
    "bert_small_h100.json.gz": 0.92,
    "bert_small_mi300x.json.gz": 0.92,
    "qwen_prefill_h100.json.gz": 0.55,
    "part_batch_sweep_a100/batch_2.json": 0.84,
    "resnet50_workers0_v100.pt.trace.json.gz": 416 / 1050,
}
"""What the README measured of the first finding's matter, as a share of the step or of the kernels' time: no fix gives
back more."""
HEALTHY = (
    "recsys_graphed_v100.json.gz",
    "resnet_healthy_v100.pt.trace.json.gz",
    "sam_amg_optimised_a100.json.gz",
    "vllm_graphs_mi300x.json.gz",
)


@lru_cache
def _diagnose(path: Path) -> Diagnosis:
    return diagnose_path(path)


def found_in(corpus: Path, name: str) -> list[Finding]:
    return notable(_diagnose(corpus / "kineto" / name).findings)


@pytest.mark.parametrize("name", [name for name, rules in EXPECTED.items() if rules])
def test_the_largest_known_fault_comes_first(corpus, name):
    found = [one.rule for one in found_in(corpus, name)]
    assert found[0] == EXPECTED[name][0]
    assert set(EXPECTED[name]) <= set(found)


@pytest.mark.parametrize(("name", "most"), IDLE_OR_BUSY.items())
def test_its_saving_is_positive_and_at_most_the_measured_one(corpus, name, most):
    saving = found_in(corpus, name)[0].saving
    assert saving is not None
    assert MEDIUM_FROM <= saving.fraction <= most


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_recording_has_no_serious_findings(corpus, name):
    assert [one for one in found_in(corpus, name) if one.severity is not Severity.LOW] == []


def test_a_larger_batch_is_less_bound_by_launches(corpus):
    names = [f"part_batch_sweep_a100/batch_{size}.json" for size in (2, 32, 128)]
    found = [{one.rule: one.saving.fraction for one in found_in(corpus, name) if one.saving} for name in names]
    shares = [one.get("launch-bound", 0.0) for one in found]
    assert shares[0] > shares[1] > shares[2] == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_without_a_finding_the_verdict_says_what_the_device_waits_for(corpus, rank):
    """The README: idle 55 %, the optimizer on the CPU for 105 ms of a step, exchanges exposed for 25 to 28 %; many
    kernels are missing, so about half of the idle time, some of it in the optimizer, is while work is queued."""
    diagnosis = _diagnose(corpus / "kineto" / "dlrm_128_ranks_sampled" / f"sampled_rank-{rank}.json.gz")
    assert diagnosis.verdict is not None
    waits = "part of the step waits for what was not recorded: the device works 4"
    assert diagnosis.verdict.text.startswith(f"No known fault; {waits}")
    shares = {share.label: share.fraction for share in diagnosis.timing.shares}
    assert 0.05 <= shares["idle: in the optimizer's step"] <= 0.18
    assert 0.25 <= shares["idle: though work is queued"] <= 0.35
    assert any("with work queued" in note for note in diagnosis.health)
    assert 0.24 <= shares["device: communicating, nothing computed meanwhile"] <= 0.28


def test_a_loader_with_workers_is_no_fault(corpus):
    found = {one.rule for one in found_in(corpus, "resnet50_workers4_v100.pt.trace.json.gz")}
    assert "input-bound" not in found


def test_harmless_reads_save_little(corpus):
    found = found_in(corpus, "recsys_graphed_v100.json.gz")
    assert sum(one.saving.fraction for one in found if one.saving) < 0.02
