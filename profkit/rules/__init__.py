"""The faults that profkit knows by name: one file for each is its rule and its page. Nothing lists them.

Those of other packages come by an entry point in the group ``profkit.rules`` that names a `Rule`. One that cannot be
loaded, is no rule, or has the name of another is passed over with a line on stderr: it must not cost the others.

Decisions, and why they were made:

- Waits with one cause have one price (``host_sync_in_step.py``). If many lines wait, removing one wait only makes the
  next longer. So all are removed together, and each line gets its part.
- A step that was cut off is reported as a part. Rules that judge something that comes once per step, or that a later
  operator may explain (``Need.WHOLE_STEP``), do not look. Those of what any part shows (``Need.ROUNDS``) look if it
  has rounds of a loop. What they find there counts by what the run goes on to spend at its lines.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from profkit.core.errors import UsageError
from profkit.rules.base import Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "profkit.rules"
"""The group of entry points by which packages bring rules of their own."""


@cache
def all_rules() -> MappingProxyType[str, Rule]:
    """Every rule by its public name, in alphabetical order."""
    found: dict[str, Rule] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        rule = getattr(importlib.import_module(f"{__name__}.{module.name}"), module.name, None)
        if isinstance(rule, Rule):
            found[rule.name] = rule
    for entry in _offered():
        rule = _load(entry)
        if rule is not None and found.setdefault(rule.name, rule) is not rule:
            _pass_over(entry, f"there is a rule {rule.name} already")
    return MappingProxyType(dict(sorted(found.items())))


def _offered() -> Iterable[EntryPoint]:
    """The rules of installed packages. Hardly any has some, and `importlib.metadata`, which imports a reader of mail,
    takes half as long as all rules: so the files are looked at first."""
    if not any(map(_may_offer, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _may_offer(folder: str) -> bool:
    """Whether a package in this folder of modules names the group. True for what is no folder, such as an archive."""
    where = Path(folder)
    if not where.is_dir():
        return where.exists()
    installed = (file for kind in ("dist-info", "egg-info") for file in where.glob(f"*.{kind}/entry_points.txt"))
    return any(map(_names_group, installed)) or any(where.glob("*.egg"))


def _names_group(file: Path) -> bool:
    try:
        return GROUP.encode() in file.read_bytes()
    except OSError:
        return False


def _load(entry: EntryPoint) -> Rule | None:
    """The rule that an installed package offers; None, with a line on stderr, if it offers none."""
    try:
        rule = entry.load()
    except Exception as error:
        _pass_over(entry, f"{type(error).__name__}: {' '.join(ascii(str(error))[1:-1].split())}")
        return None
    if isinstance(rule, Rule):
        return rule
    _pass_over(entry, "is no rule made with profkit.rules.base.rule")
    return None


def _pass_over(entry: EntryPoint, why: str) -> None:
    sys.stderr.write(f"profkit: the rule {entry.name} ({entry.value}) is left out: {why}\n")


def find_rule(name: str) -> Rule:
    """The rule of this name; raises `UsageError` naming the nearest."""
    rules = all_rules()
    if name in rules:
        return rules[name]
    near = difflib.get_close_matches(name, rules, n=1, cutoff=0.4)
    hint = f"; the nearest is {near[0]}" if near else ""
    raise UsageError(f"no rule is called {name!r}{hint} (see `profkit rules`)")
