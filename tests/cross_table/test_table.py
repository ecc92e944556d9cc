"""The table: a mark for each rule and recording, and a reason for each unexpected finding."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from profkit.diagnosis.catalogue import list_scenarios
from profkit.rules import all_rules
from tests.cross_table import table
from tests.cross_table.recordings import Recorded, expected_elsewhere, find_all
from tests.cross_table.table import EXPLAINED, FOUND, MISSED, UNEXPLAINED, Reason, Row, judge, read_reasons, render
from tests.derive.test_recordings_made_elsewhere import FILES
from tests.end_to_end.programs import all_programs

ROOT = Path(__file__).parents[2]
PITFALL = ROOT / "traces" / "recorded" / "nvidia-h100-80gb-hbm3" / "hand-written-attention" / "pitfall"
NAMES = list(all_rules())


def row_of(*reasons: Reason, expected: tuple[str, ...] = ("unfused-attention", "retained-graph")) -> Row:
    return judge(Recorded("recorded/hand-written-attention", PITFALL, frozenset(expected)), reasons)


def marks_of(row: Row) -> dict[str, str]:
    return {rule: mark for rule, mark in zip(NAMES, row.marks, strict=True) if mark in "#-o!"}


def test_findings_are_compared_with_the_expected_rules():
    row = row_of()
    assert marks_of(row) == {"unfused-attention": FOUND, "retained-graph": MISSED, "launch-bound": UNEXPLAINED}
    assert [hit.finding.rule for hit in row.hits] == ["launch-bound"]


@pytest.mark.parametrize(("where", "mark"), [("recorded/*", EXPLAINED), ("programs/*", UNEXPLAINED)])
def test_a_reason_applies_only_to_the_recordings_it_names(where, mark):
    row = row_of(Reason("launch-bound", where, "it is small"), Reason("unfused-pointwise", "*", "of another rule"))
    assert marks_of(row)["launch-bound"] == mark


def test_the_table_shows_rows_sums_and_unexplained_findings():
    used, idle = Reason("launch-bound", "recorded/*", "it is small"), Reason("retained-graph", "h100/*", "it grows")
    text = render(
        [row_of(), row_of(used), Row(Recorded("broken", PITFALL, frozenset()), error="ValueError: no")], [used, idle]
    )
    assert f"recorded/hand-written-attention  {row_of().marks}" in text
    assert "broken                           ValueError: no" in text
    assert f"{'unfused-attention':<28}      2       0          0            0" in text
    assert "Off the diagonal without a reason: 1 of 2\n  launch-bound in recorded/hand-written-attention, high" in text
    assert ": it is small\n" in text
    assert text.endswith("Reasons that explain nothing here:\n  retained-graph in h100/*: it grows")


def test_a_recording_that_cannot_be_read_is_a_row_with_its_error(tmp_path):
    assert judge(Recorded("gone", tmp_path, frozenset()), ()).error.startswith("UnreadableInput: ")


def test_recordings_in_the_tree_are_named_by_their_source(tmp_path):
    names = [one.name for one in find_all(tmp_path, tmp_path)]
    assert names == sorted(names)
    assert {name.partition("/")[0] for name in names} == {"h100-in-tree", "recorded"}
    assert "recorded/nvidia-h100-80gb-hbm3/hand-written-attention/pitfall" in names


def test_reasons_name_existing_rules_and_recordings():
    forms = (("scenarios/", ""), ("h100/scenarios/", "/run"), ("recorded/gpu/", ""))
    scenarios = [
        f"{source}{one.name}/{variant}{form}"
        for one in list_scenarios()
        for variant in ("pitfall", "fix")
        for source, form in forms
    ]
    programs = [f"programs/{one.path.stem}" for one in all_programs()]
    known = [*scenarios, *programs, *(f"kineto/{name}" for name in FILES)]
    for reason in read_reasons():
        assert reason.rule in NAMES
        assert reason.why
        elsewhere = reason.where.startswith(("h100/programs/", "h100*/programs/", "h100/scripts/"))
        assert elsewhere or any(fnmatchcase(name, reason.where) for name in known), reason.where


def test_every_recording_made_elsewhere_has_an_expectation():
    assert sorted(expected_elsewhere()) == sorted(FILES)
    assert {rule for rules in expected_elsewhere().values() for rule in rules} <= set(NAMES)


def test_the_exit_status_reports_unexplained_findings(monkeypatch, capsys, tmp_path):
    from tests.cross_table import __main__ as command

    monkeypatch.setenv("PROFKIT_CORPUS", str(tmp_path))
    recorded = "recorded/*/hand-written-attention/*"
    monkeypatch.setattr("sys.argv", ["cross_table", recorded, "--kept", str(tmp_path)])
    assert command.main() == 0
    monkeypatch.setattr(command, "read_reasons", tuple)
    assert command.main() == 1
    assert table.LEGEND in capsys.readouterr().out
