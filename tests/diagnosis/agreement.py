"""``python -m tests.diagnosis.agreement FOLDER``: does each recording's first sentence agree with its table and file?

The sentence's last figures are the table's within 3 %, and its verdict is the table's. The device's busy time is that
of the union of the file's kernels within 2 %. A step without the recording is never shorter than the device's work.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from profkit.core.errors import ProfkitError
from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis
from profkit.report.text import render_text
from profkit.rules import all_rules
from profkit.run.directory import find_trace
from profkit.savings.step_time import step_time
from tests.diagnosis.raw_kernels import busy_us, read_work

_WITHOUT_RULES = Settings(ignore=frozenset(all_rules()))
_SECTION = "\nWhere the step's time went\n"
_NS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
_TIME = rf"([\d.]+) ({'|'.join(_NS)})"
_ROW = re.compile(rf"^((?:device|idle): .*?) +(?:{_TIME}) +(?:< )?([\d.]+) %", re.MULTILINE)
_WORKS = re.compile(rf"works {_TIME} of {_TIME}")
_BETWEEN, _LAG = "device: between two queued kernels", "idle: before the first kernel began, cause not recorded"
_ROUNDED = 0.011
"""Three digits are printed of a time, and of the table's smallest rows less."""


def traces_in(folder: Path) -> Iterator[Path]:
    """The traces below ``folder`` that `read_work` can read, too: JSON, plain or gzip."""
    yield from sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))


def check(path: Path) -> None:
    """Raises AssertionError, with what disagrees, for a trace or a run directory."""
    facts = read_facts(path)
    diagnosis = diagnose(facts, settings=_WITHOUT_RULES)
    if not facts.device.present:
        assert _SECTION not in render_text(diagnosis) or not _WORKS.search(render_text(diagnosis))
        return
    _check_file(facts, find_trace(path) if path.is_dir() else path)
    _check_estimate(facts, diagnosis)
    _check_sentence(render_text(diagnosis, width=1_000), diagnosis)


def _check_file(facts: Facts, trace: Path | None) -> None:
    """The busy time of the measured steps is that of the union of the file's kernels."""
    assert trace is not None
    steps, work = facts.steps, read_work(trace)
    recorded = dict(step_time(facts).recorded_rows)
    first_ns = facts.trace.events.start_ns[facts.launches.work].min()
    begin_us, end_us = (
        (edges[steps.measured] - first_ns) / 1e3 + work[:, 0].min() for edges in (steps.begun_ns, steps.done_ns)
    )
    busy = busy_us(work, zip(begin_us.tolist(), end_us.tolist(), strict=True)) / float((end_us - begin_us).sum())
    parts = ("computing", "communicating, nothing computed meanwhile", "copying and clearing memory")
    told = sum(recorded.get(f"device: {part}", 0) for part in parts) / steps.usual_ns
    pauses = float(steps.pause_ns[steps.measured].sum())
    assert told == pytest.approx(busy, rel=0.02, abs=0.001) or pauses, (
        f"the device is busy for {busy:.4f}, not {told:.4f}"
    )


def _check_estimate(facts: Facts, diagnosis: Diagnosis) -> None:
    """The step without the recording is never shorter than the device works on what the step launched. In its own time
    the device may also have finished what came before."""
    timing, recorded = diagnosis.timing, step_time(facts).recorded_rows
    busy_ns = sum(time for label, time in recorded if label.startswith("device: ") and label != _BETWEEN)
    events, launches = facts.trace.events, facts.launches
    work = launches.work[facts.steps.in_measured(launches.launched_ns)]
    busy_ns = min(busy_ns, facts.steps.per_step_ns(union(events.start_ns[work], events.ends_of(work)).total_ns))
    if timing.unprofiled_step_time_ns is not None and not any(facts.run.reference_step_device_ns):
        assert timing.unprofiled_step_time_ns >= np.floor(busy_ns), "the step without recording is below the busy time"


def _check_sentence(text: str, diagnosis: Diagnosis) -> None:
    """The last figures of the sentence are those of the table, and its verdict is the table's."""
    sentence, _, table = text.partition(_SECTION)[2].partition("\n")
    rows = {label: (float(value) * _NS[unit], float(share)) for label, value, unit, share in _ROW.findall(table)}
    whole_ns = sum(time for time, _ in rows.values())
    busy_ns = sum(time for label, (time, _) in rows.items() if label.startswith("device: ") and label != _BETWEEN)
    told = re.sub(r" \(as recorded [^)]*\)", "", sentence)
    value, unit, of_value, of_unit = _WORKS.findall(told)[-1]
    assert float(value) * _NS[unit] == pytest.approx(busy_ns, rel=0.03, abs=_ROUNDED * busy_ns), sentence
    assert float(of_value) * _NS[of_unit] == pytest.approx(whole_ns, rel=0.03), sentence
    judged_ns = whole_ns - rows.get(_LAG, (0.0, 0.0))[0]
    device_ns = busy_ns + rows.get(_BETWEEN, (0.0, 0.0))[0]
    unrecorded_ns = sum(rows.get(f"idle: {reason}", (0.0, 0.0))[0] for reason in _UNRECORDED)
    shares = device_ns / judged_ns, unrecorded_ns / judged_ns, (judged_ns - device_ns - unrecorded_ns) / judged_ns
    assert diagnosis.timing.bound_by in _verdicts(*shares), f"{shares}: {sentence}"
    said = told.rpartition("without the recording ")[2].partition("; ")[0]
    assert any(words in said for words in _SAID[diagnosis.timing.bound_by]), sentence


_UNRECORDED = (
    "though work is queued",
    "the host waits for work that was not recorded",
    "the host was not recorded",
)
_SAID = {
    "device": ("he device bounds",),
    "host": ("he host bounds",),
    "mixture": ("ost and device share", "art of the step waits for what was not recorded", "art of the rest"),
    "unrecorded": (
        "The step waits for",
        "the step waits for",
        "The rest of the step waits",
        "the rest of the step waits",
    ),
}


def _verdicts(device: float, unrecorded: float, host: float) -> set[str]:
    """What may be said of these shares; two things near a limit, as rows are rounded."""
    found = set()
    for by in (-_ROUNDED, _ROUNDED):
        if device + by >= 0.9:
            found.add("device")
        elif unrecorded + by > 0.5:
            found.add("unrecorded")
        elif host + by > 0.5:
            found.add("host")
        else:
            found.add("mixture")
    return found


def main(folder: Path) -> int:
    """Prints a line for each trace that disagrees or is none, and how many agree; how many disagree."""
    said = {path: _disagreement(path) for path in traces_in(folder)}
    for path, text in said.items():
        if text:
            print(f"{path.relative_to(folder)}: {text}")
    others = sum(text.startswith(_NONE) for text in said.values())
    failed = sum(bool(text) for text in said.values()) - others
    print(f"{len(said) - failed - others} agree, {failed} do not, {others} cannot be looked at")
    return failed


_NONE = "cannot be looked at: "


def _disagreement(path: Path) -> str:
    try:
        check(path)
    except AssertionError as error:
        return str(error) or "disagrees"
    except (ProfkitError, KeyError, ValueError) as error:
        return f"{_NONE}{error!r}"
    return ""


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
