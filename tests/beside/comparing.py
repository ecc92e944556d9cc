"""What profkit changed in a program: two outcomes compared, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice, zip_longest

from tests.beside.running import Outcome

PROGRAM_FAILED = 3
_OWN_LINES = re.compile(r"(?m)(profkit: .*|^Written to .*(\n  .*)*|/\S*/run(-\d+|-window\d+)?)(\n|\Z)")
"""What profkit announces on stderr, also after a line that the program has not ended: see docs/programs.md."""


_BEFORE, _SHOWN = 40, 120
_MOST_LINES = 20


@dataclass(frozen=True)
class Difference:
    kind: str
    """stdout, stderr, status, files, processes, hang, or run.json."""
    text: str


def compared(bare: Outcome, watched: Outcome, mode: str, masks: Sequence[str]) -> tuple[Difference, ...]:
    return tuple(_differences(bare, watched, mode, masks))


def _differences(bare: Outcome, watched: Outcome, mode: str, masks: Sequence[str]) -> Iterator[Difference]:
    if watched.status is None:
        yield Difference("hang", "it was killed at its limit")
        return
    yield from _of_status(bare, watched, mode)
    expected, got = (_masked(text, masks) for text in (bare.stdout, watched.stdout))
    if mode == "diagnose":
        got = without_report(expected, got)
    yield from (Difference("stdout", text) for text in differing_lines(expected, got))
    expected, got = _masked(bare.stderr, masks), _masked(_OWN_LINES.sub("", watched.stderr), masks)
    yield from (Difference("stderr", text) for text in differing_lines(expected, got))
    files, others = ({_masked(name, masks): text for name, text in one.files.items()} for one in (bare, watched))
    for name in sorted({*files, *others}):
        before, after = (of.get(name, "absent") for of in (files, others))
        if _masked(before, masks) != _masked(after, masks):
            yield Difference("files", f"{name}: {before} became {after}")
    if bare.processes != watched.processes:
        yield Difference("processes", f"left behind: {bare.processes} became {watched.processes}")


def _of_status(bare: Outcome, watched: Outcome, mode: str) -> Iterator[Difference]:
    """The command line ends with 3 where the program failed, and notes how: docs/reports.md#exit-status."""
    assert bare.status is not None
    as_shells_say = bare.status if bare.status >= 0 else 128 - bare.status
    expected = bare.status if mode == "profile" else PROGRAM_FAILED if bare.status else 0
    if watched.status != expected:
        yield Difference("status", f"{bare.status} became {watched.status}")
    elif mode != "profile" and watched.recorded_status != as_shells_say:
        yield Difference("run.json", f"status {as_shells_say} was noted as {watched.recorded_status}")


def without_report(expected: str, got: str) -> str:
    """As many lines as the program writes bare: profkit's report follows, on the last line if that has no end."""
    before = expected.splitlines(keepends=True)
    lines = got.splitlines(keepends=True)[: len(before)]
    if len(lines) == len(before) and before and not before[-1].endswith("\n"):
        lines[-1] = lines[-1][: len(before[-1])]
    return "".join(lines)


def _masked(text: str, masks: Sequence[str]) -> str:
    for mask in masks:
        text = re.sub(mask, "", text)
    return text


def differing_lines(expected: str, got: str) -> Iterator[str]:
    """Each line that differs, from a little before the first character that does; the first few of many."""
    if expected.splitlines() == got.splitlines():
        if expected != got:
            yield f"its last line ends differently: {expected[-20:]!r} became {got[-20:]!r}"
        return
    before, after = expected.splitlines(), got.splitlines()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    changed = (code[1:] for code in matcher.get_opcodes() if code[0] != "equal")
    pairs = (
        (number, line or "(nothing)", other or "(nothing)")
        for start, end, begin, stop in changed
        for number, (line, other) in enumerate(zip_longest(before[start:end], after[begin:stop]), start + 1)
    )
    for number, line, other in islice(pairs, _MOST_LINES):
        parted = next((at for at, (one, two) in enumerate(zip(line, other, strict=False)) if one != two), 0)
        begin = max(0, parted - _BEFORE)
        parts = (("…" if begin else "") + one[begin : begin + _SHOWN] for one in (line, other))
        yield f"line {number}: {' became '.join(map(repr, parts))}"
