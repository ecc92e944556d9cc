"""``--all``: recordings of the changed program, until nothing more is won."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from profkit.diagnosis.fixing.proving import HELD, LINE_ALTERED, NO_GAIN, REFUSED, Limits, prove_fixes
from profkit.diagnosis.fixing.rounds import MOST_ROUNDS, prove_all
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Run, Seen, Stage, TooLong
from profkit.findings.values import Diagnosis, Finding, Kind, Location, RunSummary, Severity, Timing

PROGRAM = b"losses.append(loss)\nkept.append(out)\nothers.append(x)\n"


class Counted(Stage):
    """A stage in which each ``detach`` halves the time, but for that of the line ``others``."""

    def run(self, changed: Mapping[Path, bytes], timeout_s: float) -> Run:
        text = changed.get(Path("train.py"), PROGRAM)
        won = text.count(b"detach") - text.count(b"x.detach")
        seen = Seen(run_ns=int(8e9 * 0.5**won))
        parameters = {"end.0.0": np.array([1.0]), "start.0.0": np.zeros(1)}
        return Run(0, "loss 0.5", "", seen, {}, parameters)


def found(tmp_path: Path, *lines: int) -> Diagnosis:
    sources = PROGRAM.decode().splitlines()
    findings = tuple(
        Finding(
            "retained-graph",
            Kind.FAULT,
            Severity.HIGH,
            "",
            1,
            0.9,
            "",
            Location(str(tmp_path / "train.py"), line, "main", sources[line - 1][:-1]),
        )
        for line in lines
    )
    return Diagnosis(RunSummary((), None, None, None, None), Timing(0, 0, "optimizer"), findings, {}, ())


def fix_all(tmp_path: Path, first: Diagnosis, *more: Diagnosis):
    (tmp_path / "train.py").write_bytes(PROGRAM)
    stage = Counted(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    recorded: list[bytes] = []
    left = list(more)

    def diagnose(changed: Mapping[Path, bytes]) -> Diagnosis:
        recorded.append(changed[Path("train.py")])
        return left.pop(0) if len(left) > 1 else left[0]

    limits = Limits(1000.0)
    fixes = prove_fixes(stage, first, limits, lambda _: None)
    return prove_all(stage, diagnose, fixes, limits, lambda _: None), recorded


def test_what_the_second_recording_shows_is_won_too(tmp_path):
    fixes, recorded = fix_all(tmp_path, found(tmp_path, 1), found(tmp_path, 2), found(tmp_path))
    assert [trial.verdict for trial in fixes.trials] == [HELD, HELD]
    assert fixes.after[Path("train.py")].count(b"detach") == 2
    assert fixes.before[Path("train.py")] == PROGRAM
    assert fixes.together is not None
    assert round(fixes.together.share.fraction, 2) == 0.75
    assert [text.count(b"detach") for text in recorded] == [1, 2]


def test_what_won_nothing_is_not_tried_again(tmp_path):
    fixes, recorded = fix_all(tmp_path, found(tmp_path, 1, 3), found(tmp_path, 3))
    assert [trial.verdict for trial in fixes.trials] == [HELD, NO_GAIN]
    assert len(recorded) == 1


def test_a_refusal_ends_the_rounds(tmp_path):
    first, second = found(tmp_path, 1), found(tmp_path, 2)
    other = second.findings[0].__class__("graph-break", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", None)
    fixes, _ = fix_all(tmp_path, first, Diagnosis(second.run, second.timing, (other,), {}, ()))
    assert [trial.verdict for trial in fixes.trials] == [HELD, REFUSED]
    assert MOST_ROUNDS > 2


def test_a_later_round_that_fails_keeps_what_held(tmp_path):
    (tmp_path / "train.py").write_bytes(PROGRAM)
    stage = Counted(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))

    def diagnose(changed: Mapping[Path, bytes]) -> Diagnosis:
        raise TooLong("a run did not end within 5 s")

    told: list[str] = []
    first = prove_fixes(stage, found(tmp_path, 1), Limits(1000.0), told.append)
    fixes = prove_all(stage, diagnose, first, Limits(1000.0), told.append)
    assert [trial.verdict for trial in fixes.held] == [HELD]
    assert told[-1] == "round 2 ended early: a run did not end within 5 s"


def test_what_another_change_stood_in_the_way_of_is_tried_in_the_next_round(tmp_path):
    first = found(tmp_path, 1)
    other = replace(first.findings[0], rule="unused-autograd-graph")
    both = replace(first, findings=(*first.findings, other))
    fixes, recorded = fix_all(tmp_path, both, replace(first, findings=(other,)))
    assert [trial.verdict for trial in fixes.trials] == [HELD, REFUSED, REFUSED]
    assert [trial.reason == LINE_ALTERED for trial in fixes.trials] == [False, True, False]
    assert len(recorded) == 1
