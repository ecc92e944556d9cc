"""Run ``profkit diagnose`` as a user does and read its results, or judge a kept recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.diagnosis.catalogue import Scenario
from tests.end_to_end.recording import RUN
from tests.forks import LONGEST_S, Ended, Forks
from tests.recordings import NO_FILES, Files, Kept, Recordings

_RECORDING = "tests.end_to_end.recording"


@dataclass(frozen=True)
class Outcome:
    """Exit status, output, diagnosis.json and run directory."""

    status: int
    stdout: str
    stderr: str
    diagnosis: dict[str, Any]
    run: Path

    @property
    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.diagnosis["findings"]]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [finding for finding in self.diagnosis["findings"] if finding["kind"] == "fault"]


def record_program(
    recordings: Recordings, *arguments: str, reads: Iterable[Path] = (), writes: Files = NO_FILES, alone: bool = False
) -> Kept:
    """``profkit record ARGUMENTS``, once; ``alone``: in processes that import PyTorch themselves."""
    command = ["record", "--output", RUN, *arguments]
    if alone:
        return recordings.start(["-m", "profkit", *command], reads=reads, writes=writes)
    return recordings.fork(f"{_RECORDING}:main", command, reads=reads, writes=writes)


def record_variant(recordings: Recordings, scenario: Scenario, variant: str) -> Kept:
    """A variant of a scenario and the results of its steps."""
    return recordings.fork(f"{_RECORDING}:record_variant", [str(scenario.path), variant], reads=[scenario.path])


def judge(kept: Kept) -> Outcome:
    """Diagnose a kept recording. The report comes after the program's output."""
    from profkit.diagnosis.pipeline import diagnose_path
    from profkit.report.json import render_json
    from profkit.run.directory import find_trace

    ended, run = kept.ended, kept.directory / RUN
    if find_trace(run) is None:
        return Outcome(ended.returncode, ended.stdout, ended.stderr, {}, run)
    diagnosis = diagnose_path(run)
    report = f"{ended.stdout}{diagnosis}"
    return Outcome(ended.returncode, report, ended.stderr, json.loads(render_json(diagnosis)), run)


def diagnose_forked(forks: Forks, *arguments: str, directory: Path) -> Outcome:
    """Like `diagnose`, but all processes, even the program's, have already imported PyTorch."""
    output = directory / RUN
    ended = forks.run(f"{_RECORDING}:main", ["diagnose", "--output", str(output), *arguments], directory)
    return _outcome(ended, output)


def diagnose(*arguments: str, directory: Path) -> Outcome:
    """Run ``profkit diagnose ARGUMENTS --output directory/run`` in an empty directory of its own."""
    output = directory / RUN
    command = [sys.executable, "-m", "profkit", "diagnose", "--output", str(output), *arguments]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side
    result = subprocess.run(
        command, cwd=directory, env=alone, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    return _outcome(result, output)


def _outcome(result: Ended | subprocess.CompletedProcess[str], output: Path) -> Outcome:
    written = output / "diagnosis.json"
    diagnosis = json.loads(written.read_text()) if written.exists() else {}
    return Outcome(result.returncode, result.stdout, result.stderr, diagnosis, output)
