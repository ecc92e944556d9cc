"""The template engine, which escapes everything, and the files beside this one.

To compile the page's template takes as long as a tenth of a small diagnosis, so a wheel brings the templates as Python.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import jinja2
from jinja2 import Environment, StrictUndefined, Template

COMPILED = "compiled"
"""The folder of the templates as Python. A checkout has none."""


def environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )


def template(name: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> Template:
    """The template in a file beside this one."""
    engine = environment()
    engine.filters.update(filters or {})
    made = _compiled(name)
    if made is None:
        return engine.from_string(asset(name))
    return Template.from_module_dict(engine, vars(made), engine.globals)


def compile_template(name: str, text: str) -> str:
    """The text of a template as a module of Python. It works with the version of the engine that made it."""
    engine = environment()
    engine.filters = _AllKnown(engine.filters)
    engine.optimized = False  # it would call filters that are not there
    code = engine.compile(text, name, name, raw=True, defer_init=True)
    return f"VERSION = {_version()!r}\n{code}"


class _AllKnown(dict[str, Callable[..., Any]]):
    """The page's own filters come when it is rendered."""

    def get(self, name: str, default: Any = str) -> Any:
        return super().get(name, default)


def module_name(name: str) -> str:
    """``report`` for ``report.html.j2``."""
    return name.partition(".")[0]


def _compiled(name: str) -> ModuleType | None:
    """None in a checkout, and if the engine has changed since."""
    where = f"{__package__}.{COMPILED}"
    if importlib.util.find_spec(where) is None:
        return None
    module = importlib.import_module(f"{where}.{module_name(name)}")
    return module if _version() == module.VERSION else None


def _version() -> str:
    return str(getattr(jinja2, "__version__", ""))


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    content = pkgutil.get_data(__package__, name)
    assert content is not None, "the loader of a package's files gives its data"
    return content.decode()


def digest(text: str) -> str:
    """The hash with which a Content-Security-Policy allows a style sheet or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
