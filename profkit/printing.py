"""What ``print`` and a notebook show of a value: its report.

Values do not know reports: whoever renders a value registers here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_RENDERERS: dict[tuple[str, str], Callable[[Any], str]] = {}
"""By the name of the value's class and the form: ``"text"``, ``"html"`` for part of a page, or ``"json"``."""
_IN_ASCII = str.maketrans({"µ": "u", "…": "...", "²": "^2"})
"""Of the characters that profkit writes itself."""


def show_as(class_name: str, form: str, render: Callable[[Any], str]) -> None:
    """From now on, ``render`` shows values of that class in that form."""
    _RENDERERS[class_name, form] = render


def shown(value: object, form: str) -> str:
    """The value's report, or its ``repr`` if nobody renders it. As text, it can be printed."""
    text = _RENDERERS.get((type(value).__name__, form), repr)(value)
    return writable(text, getattr(sys.stdout, "encoding", None)) if form == "text" else text


def writable(text: str, encoding: str | None) -> str:
    """``text`` as a stream of that encoding takes it: in ASCII, ``1.2 µs`` is ``1.2 us``, and a letter of a path that
    has no such spelling is its escape."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_IN_ASCII).encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")
    except LookupError:  # a stream of the program's own may name any encoding
        return text
    return text
