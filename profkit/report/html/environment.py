"""The template engine, which escapes everything, and the files beside this one."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined


def environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The hash with which a Content-Security-Policy allows a style sheet or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
