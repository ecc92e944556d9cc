"""The user's standing choices: which rules look, which findings to leave out, and when a command fails.

``[tool.profkit]`` in the nearest ``pyproject.toml``, from the working directory upwards::

    [tool.profkit]
    select = ["host-sync-in-step"]
    ignore = ["launch-bound"]
    fail-on = "medium"
    fail-on-opportunity = "high"
    editor = "pycharm"
    baseline = "profkit-baseline.json"

and, on a line of the program whose source was recorded, ``# profkit: ignore[rule, …]``, or ``# profkit: ignore`` for
all rules.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from profkit.core.errors import UsageError
from profkit.diagnosis.known import Key, is_known, read_baseline
from profkit.findings.values import Finding, Kind, Severity
from profkit.rules import all_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = "pyproject.toml"
_MOST_BYTES = 1 << 20
_COMMENT = re.compile(r"#\s*profkit:\s*ignore(?:\[([\w\s,-]*)\])?")
EDITORS = {
    "vscode": "vscode://file{file}:{line}",
    "pycharm": "pycharm://open?file={file}&line={line}",
    "idea": "idea://open?file={file}&line={line}",
    "sublime": "subl://open?url=file://{file}&line={line}",
    "none": "",
}
"""The addresses by which editors open a line; files begin with a slash, as in ``/C:/train.py``. VS Code and JetBrains
register theirs; Sublime Text needs a handler."""
_OTHER_EDITOR = re.compile(
    r"(?!(?:about|blob|data|file|ftp|https?|javascript|vbscript|ws|wss):)[a-z][a-z0-9+.-]*://\S+"
)
"""A web address would learn the file's path from a click, and a script is no editor."""
_LEVELS = [level.value for level in Severity if level is not Severity.INFO]


@dataclass(frozen=True, slots=True)
class Settings:
    """``select`` names the only rules that look, empty for all; those in ``ignore`` never do. ``fail_on`` and
    ``fail_on_opportunity`` are severities, or None. ``editor`` is the template of a link that opens a line: empty for
    no links, None if nothing was chosen. ``card`` is the device of a recording, whatever that calls it. ``known`` are
    the findings of the baseline, which fail nothing."""

    select: frozenset[str] = field(default_factory=frozenset)
    ignore: frozenset[str] = field(default_factory=frozenset)
    fail_on: str | None = None
    fail_on_opportunity: str | None = None
    editor: str | None = None
    card: str = ""
    known: Mapping[Key, Severity] = field(default_factory=dict)

    def wants(self, rule: str) -> bool:
        return (not self.select or rule in self.select) and rule not in self.ignore

    def fails(self, finding: Finding) -> bool:
        """Whether the finding is severe enough to fail a command, for its kind."""
        least = self.fail_on if finding.kind is Kind.FAULT else self.fail_on_opportunity
        is_severe = least is not None and finding.severity.rank <= Severity(least).rank
        return is_severe and not is_known(finding, self.known)

    def overridden(
        self,
        select: Iterable[str],
        ignore: Iterable[str],
        fail_on: str | None,
        fail_on_opportunity: str | None,
        baseline: Path | None = None,
    ) -> Settings:
        """With the command line's choices instead of the file's; rules to ignore are added."""
        chosen = replace(
            self,
            select=frozenset(select) or self.select,
            ignore=self.ignore | frozenset(ignore),
            fail_on=fail_on or self.fail_on,
            fail_on_opportunity=fail_on_opportunity or self.fail_on_opportunity,
            known=self.known if baseline is None else read_baseline(baseline),
        )
        _check_rules(chosen.select | chosen.ignore, "the command line")
        return chosen


EVERYTHING = Settings()
"""All rules look, and no finding fails a command."""
UNCHOSEN = "not asked for (select and ignore)"
"""Why a rule did not look."""


def read_settings(folder: Path) -> Settings:
    """The settings of the nearest ``pyproject.toml``. Raises `UsageError` that names the file and what is wrong in
    it."""
    path = next((one / _FILE for one in (folder, *folder.parents) if (one / _FILE).is_file()), None)
    if path is None:
        return Settings()
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
        table = tomllib.loads(text.decode("utf-8", "replace")).get("tool", {}).get("profkit", {})
    except (OSError, ValueError, AttributeError, RecursionError) as error:  # ValueError: no TOML, or a number too long
        raise UsageError(f"{path}: cannot be read: {error}") from error
    return _settings_of(table, path)


def _settings_of(table: object, path: Path) -> Settings:
    if not isinstance(table, Mapping):
        raise UsageError(f"{path}: tool.profkit is not a table")
    keys = ("select", "ignore", "fail-on", "fail-on-opportunity", "editor", "baseline")
    for key in table:
        if key not in keys:
            raise UsageError(f"{path}: tool.profkit.{key} is not a setting; the settings are {', '.join(keys)}")
    names = {key: _names(table.get(key, []), f"{path}: tool.profkit.{key}") for key in keys[:2]}
    levels = {key: _level(table.get(key), f"{path}: tool.profkit.{key}") for key in keys[2:4]}
    _check_rules(names["select"] | names["ignore"], str(path))
    editor = _editor(table.get("editor"), f"{path}: tool.profkit.editor")
    findings = _known(table.get("baseline"), path)
    chosen = names["select"], names["ignore"], levels["fail-on"], levels["fail-on-opportunity"], editor
    return Settings(*chosen, known=findings)


def _known(value: Any, path: Path) -> dict[Key, Severity]:
    """The findings of the baseline, whose path begins at the folder of the settings."""
    if value is None:
        return {}
    if not isinstance(value, str):
        raise UsageError(f"{path}: tool.profkit.baseline: give the name of a file")
    return read_baseline(path.parent / value)


def _names(value: Any, where: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"{where}: give a list of rule names")
    return frozenset(value)


def _level(value: Any, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in _LEVELS:
        raise UsageError(f"{where}: give one of {', '.join(_LEVELS)}")
    return value


def _editor(value: Any, where: str) -> str | None:
    if value is None:
        return None
    template = EDITORS.get(value, value) if isinstance(value, str) else None
    if template == "" or (template and _OTHER_EDITOR.fullmatch(template) and "{file}" in template):
        return template
    raise UsageError(f"{where}: give one of {', '.join(EDITORS)}, or an address with {{file}} and {{line}} in it")


def _check_rules(names: Iterable[str], where: str) -> None:
    known = all_rules()
    for name in sorted(names):
        if name not in known:
            close = get_close_matches(name, list(known), n=1)
            raise UsageError(f"{where}: no rule is called {name!r}{f'; the nearest is {close[0]}' if close else ''}")


def is_left_out(finding: Finding) -> bool:
    """Whether a comment on the finding's line asks to leave it out."""
    found = _COMMENT.search(finding.location.source) if finding.location is not None else None
    if found is None:
        return False
    return found[1] is None or finding.rule in {name.strip() for name in found[1].split(",")}
