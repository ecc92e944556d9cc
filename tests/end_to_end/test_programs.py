"""Ordinary programs that nobody prepared: the fault is the first one reported, on its line; clean ones stay quiet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.running import diagnose_forked
from tests.forks import Forks

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.py"))
CLEAN = [path for path in PROGRAMS if path.name.startswith("clean_")]
FAULTY = [path for path in PROGRAMS if path not in CLEAN]
MARK = re.compile(r"# expect: (\S+)$")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("program", FAULTY, ids=lambda path: path.stem)
def test_the_fault_is_the_first_one_reported_and_on_its_line(program: Path, tmp_path: Path, forks: Forks) -> None:
    ((line, rule),) = [
        (number, match[1])
        for number, text in enumerate(program.read_text().splitlines(), 1)
        if (match := MARK.search(text))
    ]
    outcome = diagnose_forked(forks, str(program), directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert rule in outcome.rules, outcome.stdout
    found = next(finding for finding in outcome.diagnosis["findings"] if finding["rule"] == rule)
    assert (Path(found["location"]["file"]).name, found["location"]["line"]) == (program.name, line), outcome.stdout
    same_kind = [finding for finding in outcome.diagnosis["findings"] if finding["kind"] == found["kind"]]
    assert same_kind[0]["rule"] == rule, outcome.stdout


@pytest.mark.parametrize("program", CLEAN, ids=lambda path: path.stem)
def test_a_clean_program_has_no_fault_of_medium_or_high_severity(program: Path, tmp_path: Path, forks: Forks) -> None:
    outcome = diagnose_forked(forks, str(program), directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    grave = [fault for fault in outcome.faults if fault["severity"] in ("high", "medium")]
    assert grave == [], outcome.stdout
    assert outcome.diagnosis["timing"]["steps"] >= 1
