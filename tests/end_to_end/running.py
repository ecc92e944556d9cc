"""Running ``profkit diagnose`` as a user does, and reading what it left."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


def diagnose(*arguments: str, directory: Path) -> Outcome:
    """Run ``profkit diagnose ARGUMENTS --output directory/run`` in an empty directory of its own."""
    output = directory / "run"
    command = [sys.executable, "-m", "profkit", "diagnose", "--output", str(output), *arguments]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
    written = output / "diagnosis.json"
    diagnosis = json.loads(written.read_text()) if written.exists() else {}
    return Outcome(result.returncode, result.stdout, result.stderr, diagnosis)
