"""No finding states less time than its fix saves, unless it says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis import judge as judging
from profkit.diagnosis.pipeline import diagnose, diagnose_path
from profkit.findings.values import Finding, Kind
from profkit.rules.base import Rule, Suspicion
from profkit.run.directory import RUN_FILE
from profkit.savings.edits import remove
from tests.traces import facts_of, op, step

ROOT = Path(__file__).parents[2]
RUNS = sorted(
    path.parent for folder in ("tests/h100/recordings", "traces/recorded") for path in (ROOT / folder).rglob(RUN_FILE)
)
NANOSECONDS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
OF_SINGLE_EVENTS = {"launch-bound"}
"""Their times are those of one kernel of many."""


def times_in(message: str) -> list[float]:
    found = re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) (ns|µs|ms|s)\b", message)
    return [float(number.replace(",", "")) * NANOSECONDS[unit] for number, unit in found]


def contradicts_itself(finding: Finding) -> bool:
    """Times have three digits, so the last one may be rounded down."""
    stated, saving = times_in(finding.message), finding.saving
    if not stated or saving is None or "shorter" in finding.message or finding.rule in OF_SINGLE_EVENTS:
        return False
    return max(stated) * 1.006 < saving.time_ns_per_step


def test_there_are_recordings_to_check() -> None:
    assert len(RUNS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_finding_states_less_time_than_its_fix_saves(run: Path) -> None:
    assert [f.message for f in diagnose_path(run).findings if contradicts_itself(f)] == []


@pytest.mark.parametrize(
    ("spent_ns", "more"),
    [
        (100_000, " Without it the step would be 500 µs shorter: what runs around it, or waits for it, goes too."),
        (500_000, ""),
        (0, ""),  # the rule tells no time
    ],
)
def test_a_saving_longer_than_the_time_spent_is_explained(
    spent_ns: int, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(facts: Facts) -> Iterator[Suspicion]:
        rows = np.flatnonzero(facts.trace.named("aten::mm"))
        yield Suspicion("It takes long.", "", rows=rows, edit=remove(rows), spent_ns=spent_ns)

    monkeypatch.setattr(judging, "all_rules", lambda: {"slow": Rule("slow", Kind.FAULT, (), check, "")})
    events = [event for at in range(0, 4000, 1000) for event in (step(at // 1000, at, 1000), op("aten::mm", at, 500))]
    (found,) = diagnose(facts_of(events)).findings
    assert found.message == f"It takes long.{more}"
