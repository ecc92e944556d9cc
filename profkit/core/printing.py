"""What ``print`` and a notebook show of a value, its report, and what may be printed of text from a file.

Values do not know the reports: the module that renders a value registers here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_RENDERERS: dict[tuple[str, str], Callable[[Any], str]] = {}
"""By class name and form: ``"text"``, ``"html"`` (part of a page) or ``"json"``."""
_IN_ASCII = str.maketrans({"µ": "u", "…": "...", "²": "^2"})
"""Spellings of the non-ASCII characters that profkit writes itself."""
_COMMAND = re.compile(
    r"(?:(?<=##)\[|:(?=:))(?=:?(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|internal-set-repo-path|"
    r"notice|remove-matcher|save-state|set-env|set-output|stop-commands|warning)(?:\s|::|\]|$))",
    re.IGNORECASE,
)
"""What GitHub Actions obeys in any line of a log: ``::error::`` where the line begins, ``##[error]`` anywhere. A report
wraps its lines, so each place may become a beginning."""


def show_as(class_name: str, form: str, render: Callable[[Any], str]) -> None:
    """Let ``render`` show values of that class in that form from now on."""
    _RENDERERS[class_name, form] = render


def shown(value: object, form: str) -> str:
    """The value's report, or its ``repr`` if nothing renders it. Text is made fit for printing to stdout."""
    text = _RENDERERS.get((type(value).__name__, form), repr)(value)
    return writable(text, getattr(sys.stdout, "encoding", None)) if form == "text" else text


def writable(text: str, encoding: str | None) -> str:
    """``text`` as a stream with that encoding can take it: ``1.2 µs`` is ``1.2 us`` in ASCII, and any other letter that
    does not fit becomes its escape."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_IN_ASCII).encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")
    except LookupError:  # the program's own stream may name any encoding
        return text
    return text


def visible(text: str) -> str:
    """``text`` with characters that could control a terminal, hide text or command a CI system shown as escapes."""
    shown = text if text.isprintable() else "".join(map(_escaped, text))
    return _COMMAND.sub(lambda found: f"\\x{ord(found[0]):x}", shown)


def visible_row(text: str) -> str:
    """A row of a program's source, visible, with its tabs as they are."""
    return "\t".join(map(visible, text.split("\t")))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
