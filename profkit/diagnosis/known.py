"""Findings that a project knows and lives with: they are reported, and fail no check unless they get worse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from profkit.core.errors import UnreadableInput, UsageError
from profkit.core.files.decoding import DAMAGE, decode_own
from profkit.core.files.reading import read_file
from profkit.core.files.writing import write_file
from profkit.findings.values import Finding, Severity

BASELINE_FILE = "profkit-baseline.json"
SCHEMA = "profkit.baseline/1"
_MOST_BYTES = 1 << 24
Key = tuple[str, str, str, str]
"""Rule, file name, function and source text: a line keeps its key when lines are added above it."""


class KnownFinding(Struct, frozen=True, order=True):
    """A finding as the baseline keeps it."""

    rule: str
    file: str
    function: str
    source: str
    severity: Severity

    @property
    def key(self) -> Key:
        return self.rule, self.file, self.function, self.source


class Baseline(Struct, frozen=True):
    """The content of the file."""

    findings: tuple[KnownFinding, ...]
    schema: str = SCHEMA


def key_of(finding: Finding) -> Key:
    """What stays the same of a finding from run to run."""
    place = finding.location
    if place is None:
        return finding.rule, "", "", ""
    return finding.rule, re.split(r"[\\/]", place.file)[-1], place.function, " ".join(place.source.split())


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Replace the file by one with these findings, and return how many differ. Raises `UsageError`."""
    worst: dict[Key, Severity] = {}
    for one in findings:
        if one.severity is not Severity.INFO:
            key = key_of(one)
            worst[key] = min(worst.get(key, one.severity), one.severity, key=lambda severity: severity.rank)
    kept = tuple(KnownFinding(*key, severity=severity) for key, severity in sorted(worst.items()))
    text = msgspec.json.format(msgspec.json.encode(Baseline(kept)), indent=1)
    try:
        write_file(path.parent, path.name, text + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    return len(kept)


def read_baseline(path: Path) -> dict[Key, Severity]:
    """The severity of each known finding. Raises `UnreadableInput`."""
    try:
        known = decode_own(read_file(path, _MOST_BYTES), Baseline)
    except FileNotFoundError:
        raise UnreadableInput(path, "no such baseline; `profkit baseline RUN` makes one") from None
    except DAMAGE as error:
        raise UnreadableInput(path, f"is not what profkit wrote: {error}") from error
    return {one.key: one.severity for one in known.findings}


def is_known(finding: Finding, known: Mapping[Key, Severity]) -> bool:
    """Whether the baseline has the finding, with this severity or a higher one."""
    severity = known.get(key_of(finding))
    return severity is not None and finding.severity.rank >= severity.rank
