"""Files whose variables say of what type they are: ``state: Tensor = zeros(3)`` is the assignment ``state = zeros(3)``.

Each change would have to know both. So the changes see a text without these annotations, and get them back. Those of
classes stay: a dataclass makes fields of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import libcst

from profkit.rules.changes.base import Edit, ProgramText, text_of
from profkit.rules.changes.scopes import scope_of

_SET = re.compile(rb"(\s*)([\w.]+)( *=(?!=))")


def without_annotations(text: ProgramText) -> bytes:
    """The file with plain assignments, each on the line that it was on; as it is if it has none that is annotated."""
    edits: dict[libcst.CSTNode, Edit] = {
        one: _plain
        for one in text.nodes(libcst.AnnAssign)
        if one.value is not None and not isinstance(scope_of(text, one), libcst.ClassDef) and not _is_long(one)
    }
    return text.edited(edits) if edits else text.module.bytes


def _plain(line: libcst.AnnAssign) -> libcst.Assign:
    assert line.value is not None
    equal: Any = line.equal
    target = libcst.AssignTarget(line.target, equal.whitespace_before, equal.whitespace_after)
    return libcst.Assign([target], line.value, line.semicolon)


def _is_long(line: libcst.AnnAssign) -> bool:
    return "\n" in text_of(line.annotation.annotation)


def with_annotations(before: bytes, plain: bytes, after: bytes) -> bytes:
    """What a change has made of the ``plain`` text of a file, with the annotations of lines that are still there, or
    that still set the same."""
    old, bare, new = (one.splitlines(keepends=True) for one in (before, plain, after))
    head = _alike(bare, new)
    tail = min(_alike(bare[::-1], new[::-1]), len(bare) - head, len(new) - head)
    middle = bare[head : len(bare) - tail], new[head : len(new) - tail]
    found = [*old[:head]]
    for kind, begin, end, first, last in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
        kept = old[head + begin : head + end]
        found += kept if kind == "equal" else _annotated(kept, middle[0][begin:end], middle[1][first:last])
    return b"".join(found + old[len(old) - tail :])


def _alike(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many of the first lines are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _annotated(old: Sequence[bytes], bare: Sequence[bytes], new: Sequence[bytes]) -> list[bytes]:
    """New lines with what old ones said of the variables that they set."""
    said = {}
    for line, plain in zip(old, bare, strict=True):
        known = _SET.match(plain)
        if line != plain and known is not None:
            said[known[2]] = line[known.end(2) : len(line) - len(plain) + known.end(2)]
    return [
        line[: found.end(2)] + said[found[2]] + line[found.end(2) :]
        if (found := _SET.match(line)) is not None and found[2] in said
        else line
        for line in new
    ]
