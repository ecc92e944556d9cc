"""Whether a line of the program makes text of values: a format string, a call that prints or logs, ``%``."""

from __future__ import annotations

import re

_FORMATTED = re.compile(
    r"""\b[rR]?[fF][rR]?["']"""  # a format string
    r"""|\b(?:print|str|repr|format|debug|info|warning|error|critical|exception|log|write)\s*\("""
    r"""|["']\s*%(?!\w)"""
)


def makes_text(line: str) -> bool:
    """Also true for a logger's call that may never be shown."""
    return _FORMATTED.search(line) is not None
