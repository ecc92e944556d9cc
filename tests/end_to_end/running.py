"""Running ``profkit diagnose`` as a user does, and reading what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forks import Ended, Forks


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


def diagnose_scenario(forks: Forks, *arguments: str, directory: Path) -> Outcome:
    """`diagnose` in a process that has PyTorch imported already; for scenarios, which run in profkit's own process."""
    output = directory / "run"
    ended = forks.run("profkit.cli:main", ["diagnose", "--output", str(output), *arguments], directory)
    return _outcome(ended, output)


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
