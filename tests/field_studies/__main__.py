"""``python -m tests.field_studies [NAME …]`` runs the programs of the causes whose names contain these words, all
without, and prints a table for each study."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.field_studies import LOW_UTILISATION, PROBLEMS, PROGRAMS, Cause, reported, share_covered

_LONGEST_S = 600
"""A program takes ten seconds on a quiet machine."""
_said: dict[str, list[str]] = {}


def say(shown_by: str) -> list[str]:
    """The rules that report the program or scenario, worst first; run once."""
    if shown_by not in _said:
        target = str(PROGRAMS / shown_by) if shown_by.endswith(".py") else shown_by
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run")
            command = [sys.executable, "-m", "profkit", "diagnose", "--output", str(run), target]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=False)
            found = next(run.rglob("diagnosis.json"), None)
            findings = json.loads(found.read_text())["findings"] if found is not None else []
            _said[shown_by] = [f"{finding['rule']} ({finding['severity']})" for finding in findings]
    return _said[shown_by]


def judge(cause: Cause) -> tuple[bool, str]:
    """Whether the cause is covered, and a cell for the table."""
    if cause.why_not:
        return False, f"not shown: {cause.why_not}"
    if callable(cause.shown_by):
        names = reported(cause.shown_by(), cause.rules)
        return bool(names), f"{', '.join(names) or 'nothing'} (played)"
    said = say(cause.shown_by)
    return any(one.split()[0] in cause.rules for one in said), ", ".join(said) or "nothing"


def main(words: list[str]) -> None:
    for title, causes in (("Gao et al. 2024", LOW_UTILISATION), ("Cao et al. 2022", PROBLEMS)):
        chosen = [cause for cause in causes if not words or any(word in cause.name for word in words)]
        covered = set[str]()
        print(f"\n| {title} | count | shown by | covered | profkit says |\n|---|---|---|---|---|")
        for cause in chosen:
            is_covered, cell = judge(cause)
            covered |= {cause.name} if is_covered else set()
            shown = cause.shown_by if isinstance(cause.shown_by, str) else "played devices"
            print(f"| {cause.name} | {cause.count} | {shown} | {'yes' if is_covered else 'no'} | {cell} |", flush=True)
        if len(chosen) == len(causes):
            print(f"\ncovered by the study's counts: {share_covered(causes, covered):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
