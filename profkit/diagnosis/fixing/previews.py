"""A finding's change as a patch, before anything has been run. Only the file of the finding's line is read."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.core.errors import UnreadableInput
from profkit.core.files.reading import read_file
from profkit.diagnosis.fixing.patches import diff_of
from profkit.findings.values import Finding, Kind, RunSummary
from profkit.rules.changes import AltersNumbers, Refused, changed_file

_MOST_BYTES = 1 << 20
"""Of a program's file: what is longer was not written by hand."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines from ``first`` up to ``end``, which is not one of them, become a text of whole lines. Lines count from
    1."""

    first: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """The patch, empty if there is none; then the reason. ``unsafe`` says why only ``--unsafe`` tries it. ``name`` is
    the file, relative to the folder, and ``pieces`` are what is replaced in it."""

    patch: str = ""
    refusal: str = ""
    unsafe: str = ""
    name: str = ""
    pieces: tuple[Piece, ...] = ()


def preview(finding: Finding, within: Path) -> Preview:
    """The change of a finding whose file lies in the folder ``within``. Libraries are nobody's to change."""
    place = finding.location
    if place is None or not place.source:
        return Preview(refusal="no single line of the program is at fault")
    try:
        name, raw = _own_file(place.file, within)
    except Refused as reason:
        return Preview(refusal=str(reason))
    unsafe = "it may alter the numbers that the program computes" if finding.kind is Kind.OPPORTUNITY else ""
    try:
        after = changed_file(raw, finding)
    except AltersNumbers as change:
        after, unsafe = change.after, change.reason
    except Refused as reason:
        return Preview(refusal=str(reason))
    patch = diff_of(name, raw, after).decode("utf-8", "replace")
    return Preview(patch, unsafe=unsafe, name=name.as_posix(), pieces=_pieces(raw, after))


def _own_file(name: str, within: Path) -> tuple[Path, bytes]:
    """A file of the folder by its name, relative to that, and what it holds. Raises `Refused` for any other."""
    try:
        path = (within / name).resolve()  # of an absolute path, that path
    except (OSError, ValueError, RuntimeError) as error:  # a name from elsewhere may be none here, a link its own aim
        raise Refused("the file cannot be read (no such name)") from error
    if not (path.is_relative_to(within.resolve()) and "site-packages" not in path.parts and path.suffix == ".py"):
        raise Refused("the line is not part of the program's own folder")
    try:
        return path.relative_to(within.resolve()), read_file(path, _MOST_BYTES)
    except UnreadableInput as error:
        raise Refused(f"the file {error.cause}") from error
    except (OSError, ValueError) as error:
        raise Refused("the file cannot be read (no such file)") from error


def _pieces(before: bytes, after: bytes) -> tuple[Piece, ...]:
    """Empty if the files are no UTF-8, or if the last line has no end: then a piece is no row of whole lines."""
    if not (before.endswith(b"\n") and after.endswith(b"\n")):
        return ()
    try:
        old, new = (raw.decode("utf-8").split("\n")[:-1] for raw in (before, after))
    except UnicodeDecodeError:
        return ()
    head = _alike(old, new)  # equal lines are left out: a comparison takes their number squared
    tail = min(_alike(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(
        Piece(head + begin + 1, head + end + 1, "".join(f"{line}\n" for line in new[start:stop]))
        for tag, begin, end, start, stop in changes
        if tag != "equal"
    )


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines two texts begin with alike."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (before, after) in pairs if before != after), min(len(old), len(new)))


def proving_command(run: RunSummary, finding: Finding, unsafe: bool) -> str:
    """The command line that proves the change; empty if the recording does not say how the program was started."""
    if run.command[:1] != ("python",) or len(run.command) < 2:
        return ""
    is_module = run.command[1] == "-m" and len(run.command) > 2
    target, given = (run.command[1:3], run.command[3:]) if is_module else (run.command[1:2], run.command[2:])
    options = ["--select", finding.rule, *(["--unsafe"] if unsafe else []), *(["--", *given] if given else [])]
    return shlex.join(["profkit", "fix", *target, *options])
