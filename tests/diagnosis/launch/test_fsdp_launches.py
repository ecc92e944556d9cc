"""Launches of FSDP as RCCL's traces show them: gathers, a late rank, and traces with less information."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.replay import replay_launch
from profkit.diagnosis.launch.finding import find_ranks
from profkit.diagnosis.launch.launching import diagnose_ranks, gather
from profkit.findings.values import Diagnosis
from tests.diagnosis.launch.fsdp_traces import COMPUTE, GATHER, LAYERS, UPDATE, write_launch


def diagnosed(folder: Path, **known: Any) -> Diagnosis:
    write_launch(folder, **known)
    found = diagnose_ranks(str(folder))
    return found.diagnosis


def gathered(folder: Path, **known: Any) -> Launch:
    write_launch(folder, **known)
    return gather([str(path) for path in find_ranks(folder)]).launch


SAYING: list[dict[str, Any]] = [{}, {"on_kernels": False}, {"whole_list": False}]


@pytest.mark.parametrize("known", SAYING)
@pytest.mark.parametrize("prefetched", [True, False])
def test_a_launch_of_fsdp_replayed_without_an_edit_takes_as_long_as_recorded(
    tmp_path: Path, prefetched: bool, known: dict[str, Any]
):
    replay = replay_launch(gathered(tmp_path, prefetched=prefetched, **known))
    assert replay.replayed_ns == pytest.approx(replay.recorded_ns, rel=0.001)


@pytest.mark.parametrize("known", SAYING)
def test_gathers_that_wait_for_their_layer_are_reported_with_what_prefetching_saves(
    tmp_path: Path, known: dict[str, Any]
):
    """All but the first gather: 900 of 5,480 µs per step."""
    found = diagnosed(tmp_path, prefetched=False, **known)
    (one,) = [finding for finding in found.findings if finding.rule == "gather-not-prefetched"]
    assert one.evidence["gathers_per_step"] == LAYERS - 1
    step = 60 + LAYERS * (GATHER + COMPUTE) + UPDATE + 20
    assert one.saving is not None
    assert one.saving.fraction == pytest.approx((LAYERS - 1) * GATHER / step, rel=0.02)
    assert "exposed-communication" not in {finding.rule for finding in found.findings}


@pytest.mark.parametrize("known", SAYING)
def test_prefetched_gathers_are_not_reported(tmp_path: Path, known: dict[str, Any]):
    found = diagnosed(tmp_path, prefetched=True, **known)
    assert {finding.rule for finding in found.findings} <= {"host-sync-in-step"}


def test_a_late_rank_has_its_lateness_and_waits_for_it_are_not_transfers(tmp_path: Path):
    """Each of its four layers takes 200 µs longer; the last one's is waited for in the next step, less the
    20.5 µs in which the host has launched nothing yet that waits."""
    found = diagnosed(tmp_path, prefetched=False, late=800)
    assert found.launch is not None
    late = found.launch.ranks[1]
    assert (late.cause, late.late_steps, late.late_ns) == ("compute", 3, 779_500)
    by_rule = {finding.rule: finding for finding in found.findings}
    assert by_rule["straggler"].evidence["rank"] == 1
    assert by_rule["gather-not-prefetched"].evidence["waited_ns_per_step"] == 900_000


def test_a_rank_with_fewer_steps_only_reduces_the_compared_steps(tmp_path: Path):
    """The optimizer marks the steps, so the first one begins after its first update."""
    launch = gathered(tmp_path, prefetched=True, steps={1: 3})
    assert [len(table.collectives) for table in launch.tables] == [16, 12]
    assert (launch.joint.members == 2).sum() == 2 * LAYERS
