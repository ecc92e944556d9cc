"""What a recording of the copy is judged by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.diagnosis.experiments import measure
from profkit.diagnosis.fixing import diagnosing
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Stage
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, RunSummary, Timing

NOTHING = Diagnosis(RunSummary((), None, None, None, None), Timing(0, 0, "optimizer"), (), {}, ())


class Recorded(Stage):
    def record(self, directory, changed, timeout_s):
        return 0, ""


@pytest.mark.parametrize("measured", [False, True])
def test_what_no_recording_can_price_is_tried_out_if_it_was_asked_for(monkeypatch, tmp_path, measured):
    asked = []

    def diagnose_path(directory: Path, how: object, settings: Settings) -> Diagnosis:
        asked.append((how, settings))
        return replace(NOTHING)

    monkeypatch.setattr(diagnosing, "find_trace", lambda _: tmp_path)
    monkeypatch.setattr(diagnosing, "diagnose_path", diagnose_path)
    stage, settings = Recorded(Tree(tmp_path, tmp_path), Program("train.py"), tmp_path), Settings()
    assert diagnosing.diagnose_copy(stage, settings, {}, 1.0, measured) == NOTHING
    assert asked == [(measure if measured else None, settings)]
