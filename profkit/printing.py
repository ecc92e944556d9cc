"""What ``print`` and a notebook show of a value: its report.

Values do not know reports: whoever renders a value registers here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_RENDERERS: dict[tuple[str, str], Callable[[Any], str]] = {}
"""By the name of the value's class and the form: ``"text"``, or ``"html"`` for part of a page."""


def show_as(class_name: str, form: str, render: Callable[[Any], str]) -> None:
    """From now on, ``render`` shows values of that class in that form."""
    _RENDERERS[class_name, form] = render


def shown(value: object, form: str) -> str:
    """The value's report, or its ``repr`` if nobody renders it."""
    return _RENDERERS.get((type(value).__name__, form), repr)(value)
