"""The traces that are damaged hold what they are to show."""

from __future__ import annotations

import json
import random

import pytest

from profkit.derive.facts import Facts
from tests.fuzzing.traces import MUTATIONS, corpus_seeds, judge, seeds
from tests.traces import trace_of_bytes


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: seed.name)
def test_the_seeds_are_sound(seed):
    facts = Facts(trace_of_bytes(json.dumps(seed.document).encode()), seed.run, seed.callsites)
    assert facts.trace.health == ()
    assert len(facts.steps) >= 2
    assert facts.device.present == (seed.name != "without-kernels")
    assert judge(facts).timing.steps >= 2


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
