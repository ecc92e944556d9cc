"""Running ``profkit diagnose`` as a user does, and reading what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.forks import Ended, ForkedProgram, Forks


@dataclass(frozen=True)
class Outcome:
    """Exit status, what was printed, and diagnosis.json."""

    status: int
    stdout: str
    stderr: str
    diagnosis: dict[str, Any]

    @property
    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.diagnosis["findings"]]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [finding for finding in self.diagnosis["findings"] if finding["kind"] == "fault"]


def diagnose_forked(forks: Forks, *arguments: str, directory: Path) -> Outcome:
    """The same as `diagnose` in processes that have PyTorch imported already, the program's own included."""
    output = directory / "run"
    ended = forks.run("tests.end_to_end.running:main", ["diagnose", "--output", str(output), *arguments], directory)
    return _outcome(ended, output)


def main() -> None:
    """The command line, which starts programs as forks."""
    from profkit import cli
    from profkit.collect.launch import parent as launch

    setattr(launch, "subprocess", SimpleNamespace(Popen=ForkedProgram))  # noqa: B010  # for this process
    cli.main()


def diagnose(*arguments: str, directory: Path) -> Outcome:
    """Run ``profkit diagnose ARGUMENTS --output directory/run`` in an empty directory of its own."""
    output = directory / "run"
    command = [sys.executable, "-m", "profkit", "diagnose", "--output", str(output), *arguments]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side
    result = subprocess.run(command, cwd=directory, env=alone, capture_output=True, text=True, check=False, timeout=300)
    return _outcome(result, output)


def _outcome(result: Ended | subprocess.CompletedProcess[str], output: Path) -> Outcome:
    written = output / "diagnosis.json"
    diagnosis = json.loads(written.read_text()) if written.exists() else {}
    return Outcome(result.returncode, result.stdout, result.stderr, diagnosis)
