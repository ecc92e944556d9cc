"""A run that does not end in its time, and who may be to blame."""

from __future__ import annotations

import os

import pytest

from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Stage, TooLong

pytestmark = pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="the system does not say how crowded it is")
NO_TIME_S = 0.001
"""Not even Python starts in it."""


@pytest.mark.parametrize(
    ("load", "one_thread", "said"),
    [
        (12.4, False, " (about 12 threads want 4 CPUs: wait until others are done, or set OMP_NUM_THREADS=1)"),
        (12.4, True, " (about 12 threads want 4 CPUs: wait until others are done)"),
        (4.6, False, ""),
    ],
)
def test_a_crowded_machine_is_named(tmp_path, monkeypatch, load, one_thread, said):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    program = tmp_path / "program"
    program.mkdir()
    (program / "train.py").write_text("print(1)\n")
    stages = tmp_path / "stage"
    stages.mkdir()
    with pytest.raises(TooLong) as raised:
        Stage(Tree(program, program), Program("train.py"), stages, one_thread).run({}, NO_TIME_S)
    assert str(raised.value) == f"a run did not end within 0 s{said}"


VOCABULARY = "words = set('the quick brown fox jumps over a lazy dog'.split())\nprint(*words)\n"


@pytest.mark.parametrize(("given", "orders"), [(None, 1), ("0", 1), ("random", 3)])
def test_sets_of_strings_have_one_order_in_all_runs_unless_the_user_says_otherwise(
    tmp_path, monkeypatch, given, orders
):
    if given is None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    else:
        monkeypatch.setenv("PYTHONHASHSEED", given)
    program, stages = (tmp_path / "program").resolve(), (tmp_path / "stage").resolve()
    program.mkdir()
    stages.mkdir()
    (program / "train.py").write_text(VOCABULARY)
    stage = Stage(Tree(program, program), Program("train.py"), stages)
    assert len({stage.run({}, 60.0).output for _ in range(3)}) == orders
