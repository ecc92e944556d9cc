"""What a project and a line of a program ask for: which rules look, what is left out, what fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.pipeline import diagnose
from profkit.diagnosis.settings import EVERYTHING, UNCHOSEN, Settings, is_left_out, read_settings
from profkit.findings.values import Finding, Kind, Location, Severity
from profkit.rules import all_rules
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, step

RULES = sorted(all_rules())


def write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_the_nearest_settings_file_upwards_is_read(tmp_path: Path) -> None:
    write(tmp_path, '[tool.profkit]\nignore = ["launch-bound"]\nfail-on = "medium"\nfail-on-opportunity = "high"')
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert read_settings(tmp_path / "a" / "b") == Settings(
        ignore=frozenset({"launch-bound"}), fail_on="medium", fail_on_opportunity="high"
    )
    write(tmp_path / "a", "[project]\nname = 'x'")
    assert read_settings(tmp_path / "a" / "b") == EVERYTHING


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[tool.profkit", "cannot be read: "),
        ("tool = 3", "cannot be read: "),
        ("[tool.profkit]\nignore = [" + "9" * 5000 + "]", "cannot be read: "),
        ("tool.profkit = 3", "tool.profkit is not a table"),
        ("[tool.profkit]\nfoo = 1", "tool.profkit.foo is not a setting; the settings are select, ignore, fail-on,"),
        ("[tool.profkit]\nselect = 'x'", "tool.profkit.select: give a list of rule names"),
        ("[tool.profkit]\nignore = [1]", "tool.profkit.ignore: give a list of rule names"),
        ("[tool.profkit]\nignore = ['launch-bond']", "no rule is called 'launch-bond'; the nearest is launch-bound"),
        ("[tool.profkit]\nfail-on = 'info'", "tool.profkit.fail-on: give one of high, medium, low"),
        ("[tool.profkit]\nfail-on = ['high']", "tool.profkit.fail-on: give one of high, medium, low"),
    ],
)
def test_an_error_in_a_settings_file_names_the_file(tmp_path: Path, text: str, cause: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_settings(tmp_path)
    assert str(path) in str(raised.value)
    assert cause in str(raised.value)


def test_the_command_line_overrides_the_file_and_adds_to_its_ignored_rules() -> None:
    written = Settings(frozenset({"launch-bound"}), frozenset({"cat"}), "low", "low")
    written = replace(written, ignore=frozenset({"retained-graph"}))
    assert written.overridden((), (), None, None) == written
    assert written.overridden(["float64-compute"], ["input-bound"], "high", None) == Settings(
        frozenset({"float64-compute"}), frozenset({"retained-graph", "input-bound"}), "high", "low"
    )
    with pytest.raises(UsageError, match="the command line: no rule is called 'nothing'"):
        EVERYTHING.overridden(["nothing"], (), None, None)


def test_a_rule_that_is_not_selected_does_not_look() -> None:
    facts = facts_of([step(1, 0, 1000), op("aten::mm", 0, 900)])
    found = diagnose(facts, settings=Settings(select=frozenset({"float64-compute", "launch-bound"})))
    unasked = {name for name, reason in found.skipped.items() if reason == UNCHOSEN}
    assert unasked == set(RULES) - {"float64-compute", "launch-bound"}
    found = diagnose(facts, settings=Settings(ignore=frozenset({"float64-compute"})))
    assert found.skipped["float64-compute"] == UNCHOSEN


def finding_at(source: str, rule: str = "float64-compute") -> Finding:
    place = Location("train.py", 7, "f", source)
    return Finding(rule, Kind.FAULT, Severity.HIGH, "", 1, 1.0, "", place)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y = x  # profkit: ignore", True),
        ("y = x  # profkit: ignore[float64-compute]", True),
        ("y = x  # noqa  #profkit:ignore[launch-bound, float64-compute]", True),
        ("y = x  # profkit: ignore[launch-bound]", False),
        ("y = x  # profkit: ignore[]", False),
        ("y = x  # ignore", False),
        ("y = x", False),
    ],
)
def test_a_comment_on_the_line_leaves_a_finding_out(source: str, expected: bool) -> None:
    assert is_left_out(finding_at(source)) is expected


def test_a_finding_without_a_line_is_never_left_out() -> None:
    assert not is_left_out(replace(finding_at("# profkit: ignore"), location=None))


def _doubles(comment: str):
    sites = (CallSite("/home/user/train.py", 7, "step", f"y = x @ w{comment}"),)
    product = {"dims": "[[512,512],[512,512]]", "types": '["double","double"]'}
    events = [step(1, 0, 3000), mark(0, 0, 2900), op("aten::mm", 0, 2800, **product)]
    for number in range(2, 6):
        events += [step(number, 3000 * number, 1000), op("aten::mm", 3000 * number, 900, **product)]
    return facts_of(events, callsites=sites)


def test_ignored_findings_are_counted() -> None:
    counted, silent = diagnose(_doubles("")), diagnose(_doubles("  # profkit: ignore[float64-compute]"))
    assert [one.rule for one in counted.findings if one.rule == "float64-compute"]
    assert counted.ignored == {}
    assert not [one.rule for one in silent.findings if one.rule == "float64-compute"]
    assert silent.ignored == {"float64-compute": 1}
