"""Rules: one file, one rule, one page. They are found by walking this package; nothing lists them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from types import MappingProxyType

from profkit.errors import UsageError
from profkit.rules.base import Rule


@cache
def all_rules() -> MappingProxyType[str, Rule]:
    """Every rule by its public name, in alphabetical order."""
    found = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        rule = getattr(importlib.import_module(f"{__name__}.{module.name}"), module.name, None)
        if isinstance(rule, Rule):
            found[rule.name] = rule
    return MappingProxyType(found)


def find_rule(name: str) -> Rule:
    """The rule of this name; raises `UsageError` naming the nearest."""
    rules = all_rules()
    if name in rules:
        return rules[name]
    near = difflib.get_close_matches(name, rules, n=1, cutoff=0.4)
    hint = f"; the nearest is {near[0]}" if near else ""
    raise UsageError(f"no rule is called {name!r}{hint} (see `profkit rules`)")
