"""The changes that `profkit fix` tries: one file for each rule that has one, named like the rule. Nothing lists them.

A change gets the text of the file and the finding, and returns the changed text, or raises `Refused` with a reason.
Whether it holds is shown by running the program, not here. All else in the file stays as it is, byte for byte.

Decisions, and why they were made:

- libcst, not text: a call over several lines, tabs, comments and other encodings need no code of their own.
- A literal may be changed, a variable not. Whoever wrote ``num_workers=args.workers`` decides it elsewhere.
- Where a rule has no file here, its finding's changed line (``source/changes.py``) is applied.
- A change that fails unforeseen, or writes what is no Python, is refused with what to report. The others go on.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import tokenize
from collections.abc import Callable
from typing import TYPE_CHECKING

from profkit.core.failures import describe_failure
from profkit.findings.values import Change, Finding
from profkit.rules.changes.refusing import AlreadyMade, AltersNumbers, Refused

if TYPE_CHECKING:
    from profkit.rules.changes.base import ProgramText

__all__ = ["AlreadyMade", "AltersNumbers", "Refused", "changed_file"]

NOT_RULES = (
    "alive",
    "annotations",
    "base",
    "begun_as_none",
    "bookkeeping",
    "columns",
    "mapped_rows",
    "sums",
    "deferring",
    "drawing",
    "early_reads",
    "filled_beginnings",
    "einsums",
    "given",
    "growing_rows",
    "joined_copies",
    "keeping",
    "kept_by_object",
    "kinds",
    "layout",
    "models",
    "parts",
    "passing",
    "refusing",
    "rounds",
    "row_lengths",
    "scopes",
    "sending",
    "sharing",
    "unused_imports",
)
"""Files here that the changes share."""


def changed_file(raw: bytes, finding: Finding) -> bytes:
    """The file of a finding with its change. Raises `Refused` if there is none, or it does not fit."""
    location = finding.location
    if location is None or location.line <= 0:
        raise Refused("no single line of the program is at fault")
    if location.precision != "call":
        raise Refused("only the function is known, not the line")
    _refuse_other_line(raw, location.line, location.source)
    change = _change_of(finding.rule)
    if change is not None:
        after = _changed(raw, change, finding)
    elif finding.change is not None:
        after = _with_line(raw, location.line, finding.change)
    else:
        raise Refused("profkit has no change for this rule, only its advice")
    if after == raw:
        raise AlreadyMade("the change leaves the file as it is")
    return after


def _changed(raw: bytes, change: Callable[[ProgramText, Finding], bytes], finding: Finding) -> bytes:
    try:
        return _made(raw, change, finding)
    except Refused:
        raise
    except RecursionError:
        raise Refused("the file is nested too deeply") from None
    except Exception as error:  # one change that fails must not cost the user the others
        raise Refused(f"the change {describe_failure(error)}") from error


def _made(raw: bytes, change: Callable[[ProgramText, Finding], bytes], finding: Finding) -> bytes:
    """What the change makes of the file: without the annotations of its variables if it can, else as it is, as they
    may be what shows that the change fits."""
    from profkit.rules.changes.annotations import with_annotations, without_annotations
    from profkit.rules.changes.base import program_text

    plain = without_annotations(program_text(raw))
    if plain == raw:
        return _made_of(raw, change, finding)
    altering: AltersNumbers | None = None
    try:
        return with_annotations(raw, plain, _made_of(plain, change, finding))
    except AltersNumbers as found:
        altering = found.with_text(with_annotations(raw, plain, found.after))
    except Refused:
        pass
    try:
        return _made_of(raw, change, finding)
    except Refused as reason:
        raise altering or reason from None


def _made_of(raw: bytes, change: Callable[[ProgramText, Finding], bytes], finding: Finding) -> bytes:
    """What the change makes, as Python that its author would leave behind."""
    from profkit.rules.changes.base import parse_quietly, program_text
    from profkit.rules.changes.unused_imports import without_unused_imports

    text, altering = program_text(raw), None
    try:
        after = change(text, finding)
    except AltersNumbers as found:
        after, altering = found.after, found
    parse_quietly(after)
    after = without_unused_imports(text, after)
    parse_quietly(after)
    if altering is not None:
        raise altering.with_text(after)
    return after


def has_change(rule: str) -> bool:
    """Whether a rule has a file here."""
    return _change_of(rule) is not None


def _change_of(rule: str) -> Callable[[ProgramText, Finding], bytes] | None:
    name = rule.replace("-", "_")
    if not name.isidentifier() or name in NOT_RULES or importlib.util.find_spec(f"{__name__}.{name}") is None:
        return None
    change: Callable[[ProgramText, Finding], bytes] = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return change


def _refuse_other_line(raw: bytes, number: int, source: str) -> None:
    """Raise `Refused` if the file has changed since it was recorded: the line's number then means another one."""
    lines = raw.splitlines()  # of bytes, which ends lines where Python does
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        line = lines[number - 1].decode(encoding) if number <= len(lines) else ""
    except (SyntaxError, UnicodeError, LookupError):
        raise Refused("the file is not in the encoding that it declares") from None
    if source and not line.strip().startswith(source):
        raise Refused("the line is no longer what was recorded")


def _with_line(raw: bytes, line: int, change: Change) -> bytes:
    """The line as the finding has changed it. Its text must still be what was recorded."""
    lines = raw.splitlines(keepends=True)
    before, after = change.before.encode(), change.after.encode()
    if line > len(lines) or lines[line - 1].count(before) != 1:
        raise Refused("the line is no longer what was recorded")
    lines[line - 1] = lines[line - 1].replace(before, after)
    return b"".join(lines)
