"""A finding's change as a patch, before anything has been run. Only the file of the finding's line is read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from profkit.diagnosis.fixing.patches import diff_of
from profkit.findings.values import Finding, Kind, RunSummary
from profkit.rules.changes import AltersNumbers, Refused, changed_file

_MOST_BYTES = 1 << 20
"""Of a program's file: what is longer was not written by hand."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The patch, empty if there is none; then the reason. ``unsafe`` says why only ``--unsafe`` tries it."""

    patch: str = ""
    refusal: str = ""
    unsafe: str = ""


def preview(finding: Finding, within: Path) -> Preview:
    """The change of a finding whose file lies in the folder ``within``. Libraries are nobody's to change."""
    place = finding.location
    if place is None or not place.source:
        return Preview(refusal="no single line of the program is at fault")
    path = Path(place.file) if Path(place.file).is_absolute() else within / place.file
    folders = set(path.parts)
    if not path.resolve().is_relative_to(within.resolve()) or "site-packages" in folders or path.suffix != ".py":
        return Preview(refusal="the line is not part of the program's own folder")
    try:
        raw = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else b""
    except OSError as error:
        return Preview(refusal=f"the file cannot be read ({error.strerror})")
    unsafe = "it may alter the numbers that the program computes" if finding.kind is Kind.OPPORTUNITY else ""
    try:
        after = changed_file(raw, finding)
    except AltersNumbers as change:
        after, unsafe = change.after, str(change).removesuffix("; --unsafe tries it")
    except Refused as reason:
        return Preview(refusal=str(reason))
    name = path.resolve().relative_to(within.resolve())
    return Preview(diff_of(name, raw, after).decode("utf-8", "replace"), unsafe=unsafe)


def proving_command(run: RunSummary, finding: Finding, unsafe: bool) -> str:
    """The command line that proves the change; empty if the recording does not say how the program was started."""
    if run.command[:1] != ("python",) or len(run.command) < 2:
        return ""
    is_module = run.command[1] == "-m" and len(run.command) > 2
    target, given = (run.command[1:3], run.command[3:]) if is_module else (run.command[1:2], run.command[2:])
    options = ["--select", finding.rule, *(["--unsafe"] if unsafe else []), *(["--", *given] if given else [])]
    return shlex.join(["profkit", "fix", *target, *options])
