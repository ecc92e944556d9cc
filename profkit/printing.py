"""What ``print`` and a notebook show of a value: its report.

Values do not know the reports: the module that renders a value registers here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_RENDERERS: dict[tuple[str, str], Callable[[Any], str]] = {}
"""By class name and form: ``"text"``, ``"html"`` (part of a page) or ``"json"``."""
_IN_ASCII = str.maketrans({"µ": "u", "…": "...", "²": "^2"})
"""Spellings of the non-ASCII characters that profkit writes itself."""


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
