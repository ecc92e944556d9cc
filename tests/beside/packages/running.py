"""A package's program, bare and recorded, and what comparing the two says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import profkit
from profkit.core.errors import ProfkitError
from profkit.run.directory import PROFKIT_FAILED, find_trace, load_run
from tests.beside.packages.packages import Package

_CHECKOUT = Path(__file__).parents[3]
_LIMIT_S = 240
_TIMES = re.compile(r"'train_(runtime|\w+_per_second)': '[^']*'|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
"""What the trainers of Hugging Face print of their speed, and the time in TorchRL's log."""
_SETTINGS = {
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "Agg",
    "HF_HUB_OFFLINE": "1",
    "YOLO_VERBOSE": "False",  # it prints its speed
    "YOLO_OFFLINE": "True",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",  # two threads that wait for each other on a crowded machine take minutes for tiny tensors
    "PROFKIT_STRICT": "",
}


@dataclass(frozen=True)
class Turn:
    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Reach:
    """How torch came in: by a plain import of the package, with a later import ``lazily``, or not before the program
    itself did. ``questions`` are the modules that only asked whether it is there, before that."""

    plainly: bool = False
    lazily: str = ""
    questions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    package: Package
    version: str = ""
    absent: str = ""
    """Why it does not install or run here."""
    reach: Reach = field(default_factory=Reach)
    statuses: tuple[int, int] = (0, 0)
    difference: str = ""
    """The first line of output that differs, "" if none."""
    is_recorded: bool = False
    signal: str = ""
    measured: int = 0
    timed: int = 0
    verdict: str = ""
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_steps(self) -> bool:
        return self.measured >= 3 and self.signal == self.package.signal

    @property
    def is_right(self) -> bool:
        gave_up = any(note.startswith(PROFKIT_FAILED) for note in self.notes)
        same = not self.difference and len(set(self.statuses)) == 1
        return self.is_recorded and self.has_steps and same and not gave_up


def run(package: Package, python: Path, version: str, work: Path) -> Row:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    bare = turn([str(python), str(package.program)], work)
    if bare.status:
        return Row(package, version, absent=f"its program fails bare: {last_line(bare.errors)}")
    recording = work / "recording"
    record = [str(python), "-m", "profkit", "record", "--output", str(recording), str(package.program)]
    watched = turn(record, work)
    (work / "bare.txt").write_text(bare.output + bare.errors)
    (work / "recorded.txt").write_text(watched.output + watched.errors)
    difference = first_difference(bare.output, watched.output.removesuffix(f"{recording}\n"))
    if difference and first_difference(bare.output, turn([str(python), str(package.program)], work).output):
        difference = f"two bare runs differ, too: {difference}"
    row = Row(package, version, reach=_reach(package, python, work), statuses=(bare.status, watched.status))
    return _judged(row, difference, recording, watched)


def _judged(row: Row, difference: str, recording: Path, watched: Turn) -> Row:
    try:
        is_recorded = find_trace(recording) is not None
        record = load_run(recording)
        diagnosis = profkit.diagnose(recording)
    except ProfkitError as error:
        return Row(row.package, row.version, "", row.reach, row.statuses, difference, False, verdict=str(error))
    return Row(
        row.package,
        row.version,
        "",
        row.reach,
        row.statuses,
        difference,
        is_recorded,
        record.step_signal or "none",
        diagnosis.timing.steps,
        len(record.reference_step_ns),
        diagnosis.verdict.text if diagnosis.verdict else "",
        tuple(_finding(one) for one in diagnosis.findings if one.severity.value in ("high", "medium")),
        record.notes,
    )


def turn(command: list[str], work: Path) -> Turn:
    """Run it in a new folder at the same path each time, as programs print where they are."""
    place, home = work / "place", work.parent / "home"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    home.mkdir(exist_ok=True)
    environment = os.environ | _SETTINGS | {"HOME": str(home), "PYTHONPATH": str(_CHECKOUT)}
    try:
        ended = subprocess.run(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return Turn(124, (late.stdout or b"").decode(errors="replace"), f"it runs for more than {_LIMIT_S} s")
    return Turn(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))


def first_difference(bare: str, watched: str) -> str:
    expected, got = (_TIMES.sub("#", text).splitlines() for text in (bare, watched))
    for number in range(max(len(expected), len(got))):
        line, there = (lines[number] if number < len(lines) else "(nothing)" for lines in (expected, got))
        if line != there:
            return f"line {number + 1}: {line[:60]!r} became {there[:60]!r}"
    return ""


def last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no message"])[-1][:160]


def _reach(package: Package, python: Path, work: Path) -> Reach:
    script = Path(__file__).with_name("reach.py")
    traced = turn([str(python), str(script), str(package.program), package.imported], work)
    if traced.status:
        return Reach(lazily=f"unknown: {last_line(traced.errors)}")
    known = json.loads(traced.output.splitlines()[-1])
    questions = dict.fromkeys(one["asker"] for one in known["heard"] if one["kind"] == "question")
    return Reach(known["after_package"], known["lazily"], tuple(questions))


def _finding(finding: profkit.Finding) -> str:
    where = f" at {Path(finding.location.file).name}:{finding.location.line}" if finding.location else ""
    share = f", {finding.saving.fraction:.0%}" if finding.saving else ""
    return f"{finding.severity.value} {finding.rule}{where}{share}"
