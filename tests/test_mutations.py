"""A selection of damaged GPU traces is diagnosed or refused, and the seeds themselves hold what they are to show."""

from __future__ import annotations

import json
import random

import pytest

from profkit import diagnosing
from profkit.derive.facts import Facts
from tests.mutations import MUTATIONS, attack, corpus_seeds, examine, make, seeds
from tests.traces import trace_of_bytes

COUNT = 150
PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_gpu_traces_are_diagnosed_or_refused(part):
    ends = list(attack(range(part, COUNT, PARTS), 0, seeds()))
    assert [failure for _, failure in ends if failure] == []
    assert "diagnosed" in {end for end, _ in ends}


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: seed.name)
def test_the_seeds_are_sound(seed):
    facts = Facts(trace_of_bytes(json.dumps(seed.document).encode()), seed.run, seed.callsites)
    assert facts.trace.health == ()
    assert len(facts.steps) >= 2
    assert facts.device.present == (seed.name != "without-kernels")
    assert examine(seed, json.dumps(seed.document).encode()) == "diagnosed"


def test_a_failure_is_reported_with_its_place(monkeypatch):
    def break_down(*_arguments: object) -> None:
        raise ValueError("broken for the test")

    monkeypatch.setattr(diagnosing, "loader_accounts", break_down)
    ((end, broken),) = attack([3], 0, seeds())
    assert end == "broken"
    assert broken is not None
    assert (broken.number, broken.kind) == (3, "ValueError: broken for the test")
    assert broken.place.startswith("diagnosing.py:")


def test_a_number_makes_the_same_trace_again():
    assert make(7, 0, seeds())[1] == make(7, 0, seeds())[1]
    assert make(7, 0, seeds())[1] != make(7, 1, seeds())[1]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_each_kind_of_damage_changes_something(mutation):
    events = seeds()[0].document["traceEvents"]
    changed = [mutation(random.Random(number), json.loads(json.dumps(events))) for number in range(5)]
    assert any(json.dumps(each) != json.dumps(events) for each in changed)


def test_json_files_other_than_traces_are_no_seeds(tmp_path):
    (tmp_path / "kineto").mkdir()
    (tmp_path / "kineto" / "diagnosis.json").write_text('{"findings": []}')
    (tmp_path / "kineto" / "trace.json").write_text('{"traceEvents": []}')
    assert [seed.name for seed in corpus_seeds(tmp_path)] == ["trace.json"]


def test_recordings_made_elsewhere_are_seeds_too(corpus):
    assert len(corpus_seeds(corpus)) >= 10
