"""A rank's own edit, found in its recording, as one of its launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.derive.launch.joint_edits import JointEdit, shrink_ranks_work
from profkit.diagnosis import judge as judging
from profkit.diagnosis.launch.finding import find_ranks
from profkit.diagnosis.launch.launching import gather
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Kind
from profkit.rules.base import Rule, Suspicion
from profkit.savings.edits import Edit, remove, shrink_spans
from profkit.savings.launch.launch_savings import predict_launch_saving, predict_together
from profkit.savings.launch.rank_edits import edit_of_launch
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, json_of, op, python, step

STEP_US, STEPS, TYPES = 100_000, 4, ["", "", "", "", "False", "-1"]


def rank(number: int, softmax_us: float, product_us: float, send_us: float = 5_000) -> bytes:
    """Steps of a rank that computes twice, then waits for the last one and for the transfer."""
    events = []
    for i in range(STEPS):
        at = i * STEP_US
        asked = at + softmax_us + product_us
        call = op("c10d::allreduce_", asked, 2, dims=[[[256]], [], [], [], [], []], concrete=TYPES)
        ran = annotation("gloo:all_reduce", asked + 1, at + STEP_US - asked - 2, tid=9)
        ran["args"] |= {"Input Dims": [[256]], "Input type": ["float"]}
        events += [step(i, at, STEP_US), op("aten::mm", at + softmax_us, product_us), call, ran]
        events += [python("train.py(9): multiply", at + softmax_us, product_us)]
        softened = [python("train.py(7): soften", at, softmax_us), op("aten::softmax", at, softmax_us)]
        events += softened if softmax_us else []
    return json_of(events, distributedInfo={"backend": "gloo", "rank": number, "world_size": 2})


def facts_of(folder: Path, *ranks: bytes) -> Facts:
    """Those of the last rank, with its launch."""
    for number, trace in enumerate(ranks):
        (folder / f"rank{number}.json").write_bytes(trace)
    paths = find_ranks(folder)
    return read_facts(paths[-1], launch=gather([str(path) for path in paths]).launch)


def without(facts: Facts, name: str) -> Edit:
    return remove(np.flatnonzero(facts.trace.named(name)))


def fraction(facts: Facts, *edits: Edit | JointEdit) -> float:
    return predict_together(facts, edits).fraction


def near(share: float) -> object:
    return pytest.approx(share, abs=0.001)


def test_what_all_ranks_do_they_all_save(tmp_path: Path):
    facts = facts_of(tmp_path, rank(0, 20_000, 60_000), rank(1, 20_000, 75_000))
    assert fraction(facts, without(facts, "aten::softmax")) == near(0.2)


def test_what_one_rank_saves_counts_until_the_next_one_is_the_last(tmp_path: Path):
    facts = facts_of(tmp_path, rank(0, 0, 85_000), rank(1, 20_000, 75_000))
    edit = without(facts, "aten::softmax")
    assert predict_saving(facts, edit).fraction == near(0.2)
    assert fraction(facts, edit) == near(0.1)


def test_a_call_that_goes_takes_its_collective_with_it(tmp_path: Path):
    facts = facts_of(tmp_path, rank(0, 0, 60_000), rank(1, 0, 95_000))
    joint = edit_of_launch(facts, without(facts, "c10d::allreduce_"))
    assert joint is not None
    assert len(joint.gone) == STEPS


def test_what_goes_of_a_wait_goes_of_the_transfer_and_no_more(tmp_path: Path):
    """Rank 0 waits 40 ms, of which the transfer is 5: without its waits the job gains the transfers."""
    facts = facts_of(tmp_path, rank(1, 0, 95_000), rank(0, 0, 60_000))
    begin = np.arange(STEPS) * STEP_US * 1000
    half = shrink_spans(begin + 60_003_000, begin + 99_998_000, 39_995_000 - 2_000_000, 0.1)
    assert fraction(facts, half) == near(0.02)
    assert fraction(facts, shrink_spans(begin + 60_003_000, begin + 99_998_000, 0, 0.1)) == near(0.05)


def test_a_launch_edit_and_the_ranks_own_are_one_replay(tmp_path: Path):
    """Rank 1 is 15 ms late in its products; the softmax is on both. Each is as uncertain as it counts."""
    facts = facts_of(tmp_path, rank(0, 20_000, 60_000), rank(1, 20_000, 75_000))
    assert facts.launch is not None
    own, work = without(facts, "aten::softmax"), facts.launch.tables[1].work
    row = np.flatnonzero(work.time_ns > 50_000_000)
    late = shrink_ranks_work(1, row, np.full(len(row), 60_000_000), uncertainty=0.4)
    alone = predict_launch_saving(facts, late).fraction
    assert alone == near(0.15)
    both = predict_together(facts, [own, late])
    assert both.fraction == near(0.2 + 0.15)
    assert 1 - both.low / both.fraction == near((0.2 * 0.1 + 0.15 * 0.4) / 0.35)


def test_without_a_launch_the_rank_is_replayed_alone(tmp_path: Path):
    facts = facts_of(tmp_path, rank(0, 20_000, 60_000), rank(1, 20_000, 75_000))
    alone = Facts(facts.trace)
    edit = without(alone, "aten::softmax")
    assert edit_of_launch(alone, edit) is None
    assert predict_together(alone, [edit, edit]).fraction == predict_saving(alone, edit).fraction


def test_a_recording_that_is_not_of_the_launch_is_replayed_alone(tmp_path: Path):
    facts = facts_of(tmp_path, rank(0, 20_000, 60_000), rank(1, 20_000, 75_000))
    (tmp_path / "other.json").write_bytes(rank(1, 20_000, 70_000))
    stranger = read_facts(tmp_path / "other.json", launch=facts.launch)
    assert edit_of_launch(stranger, without(stranger, "aten::softmax")) is None


def test_the_verdict_takes_the_launchs_faults_out_together_with_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The job of rank 1's loader, which is 15 ms late, and of the softmax that both have."""
    facts = facts_of(tmp_path, rank(0, 20_000, 60_000), rank(1, 20_000, 75_000))
    assert facts.launch is not None
    work = facts.launch.tables[1].work
    row = np.flatnonzero(work.time_ns > 50_000_000)
    late = shrink_ranks_work(1, row, np.full(len(row), 60_000_000))
    known = {
        "late": Suspicion("Rank 1 is late.", "", launch_edit=late, count=1),
        "slow": Suspicion("Slow.", "", edit=without(facts, "aten::softmax"), count=1),
    }
    rules = {name: Rule(name, Kind.FAULT, (), lambda _, one=one: iter([one]), "") for name, one in known.items()}
    monkeypatch.setattr(judging, "all_rules", lambda: rules)
    found = diagnose(facts)
    assert found.total is not None
    assert found.total.fraction == near(0.35)
    beyond = [(one.rule, one.saving and one.saving.beyond) for one in found.findings]
    assert beyond == [("slow", None), ("late", near(0.15))]
    assert "2 faults cost 35 %" in found.verdict.text
