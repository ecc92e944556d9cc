"""The scenarios and recordings that come with profkit, found without running any.

A scenario is read as text: its docstring, its settings (``triggers``, ``needs_gpu``, ``effect``), and the comments that
mark the lines to report. Nothing imports PyTorch, or a package of the user's that happens to be called ``scenarios``:
only profkit's own directories are searched, by path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from profkit.core.errors import UnreadableInput, UsageError

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
_EXPECTATION = re.compile(r"# expect: ([a-z0-9]+(?:-[a-z0-9]+)*)\s*$")
NOTHING = "nothing"
ANOTHER_RESULT = "another result"
EFFECTS = ("time", "memory", "time on a GPU", NOTHING, ANOTHER_RESULT)
_SETTINGS = ("triggers", "needs_gpu", "gpus", "effect", "needs_measuring")
_OWN_NAME = re.compile(r'^name = "profkit"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One pitfall and its fix. ``expected`` holds, by variant, the lines (from 1) to report and their rules.

    ``effect`` says what the fix changes: ``time``, ``memory``, or ``time on a GPU``, which a CPU does not show;
    `NOTHING` in a control, whose variants are both right, and `ANOTHER_RESULT` if the pitfall computes something wrong.
    Without ``triggers`` no rule has anything to report in either variant. ``gpus`` is how many it needs when it runs on
    GPUs. ``needs_measuring`` says that only an experiment on the machine (``--measure``) can price it.
    """

    name: str
    path: Path
    summary: str
    triggers: tuple[str, ...]
    needs_gpu: bool
    effect: str
    expected: Mapping[str, tuple[tuple[int, str], ...]]
    needs_measuring: bool = False
    gpus: int = 1


def list_scenarios() -> tuple[Scenario, ...]:
    """All built-in scenarios, sorted by name; none if profkit was installed without them."""
    return tuple(read_scenario(path) for path in _scenario_paths().values())


def scenario_names() -> list[str]:
    """The sorted names of the built-in scenarios, without reading their files."""
    return list(_scenario_paths())


def find_scenario(name: str) -> Scenario:
    """The scenario called ``name``.

    Raises `UsageError`, with the nearest name, if there is none.
    """
    paths = _scenario_paths()
    if name not in paths:
        raise UsageError(f"no scenario is called {name!r}; {_suggest(name, list(paths))}")
    return read_scenario(paths[name])


def recordings_root() -> Path | None:
    """The directory of committed recordings, ``<device>/<scenario>/…``; None if profkit was installed without them."""
    return _own_directory("_recorded", "traces/recorded")


def _scenario_paths() -> dict[str, Path]:
    """Name → file, sorted by name."""
    root = _own_directory("_scenarios", "scenarios")
    files = [] if root is None else [path for path in root.glob("*.py") if not path.name.startswith("_")]
    return {path.stem.replace("_", "-"): path for path in sorted(files)}


def _own_directory(in_package: str, in_checkout: str) -> Path | None:
    """A directory that is inside the package if profkit is installed, and beside it in a checkout."""
    installed = _PACKAGE / in_package
    if installed.is_dir():
        return installed
    beside = _CHECKOUT / in_checkout
    return beside if beside.is_dir() and _is_checkout(_CHECKOUT) else None


def _is_checkout(directory: Path) -> bool:
    """Whether ``directory`` holds profkit's sources. Site-packages may hold somebody else's ``scenarios``."""
    project = directory / "pyproject.toml"
    return project.is_file() and _OWN_NAME.search(project.read_text(encoding="utf-8")) is not None


def _suggest(name: str, names: list[str]) -> str:
    if not names:
        return "profkit was installed without its scenarios"
    nearest = get_close_matches(name.replace("_", "-"), names, n=1)
    return f"the nearest is {nearest[0]} (see `profkit scenarios`)" if nearest else "see `profkit scenarios`"


def read_scenario(path: Path) -> Scenario:
    """What a scenario file says about itself.

    Raises `UnreadableInput` for any other file.
    """
    source = path.read_text(encoding="utf-8")
    try:
        module = ast.parse(source)
        settings = _read_settings(module)
    except (SyntaxError, ValueError) as error:
        raise UnreadableInput(path, f"is not a scenario: {error}") from error
    return Scenario(
        name=path.stem.replace("_", "-"),
        path=path,
        summary=(ast.get_docstring(module) or "").partition("\n")[0],
        triggers=tuple(settings.get("triggers", ())),
        needs_gpu=bool(settings.get("needs_gpu", False)),
        effect=str(settings.get("effect", "time")),
        expected=_read_expectations(module, source),
        needs_measuring=bool(settings.get("needs_measuring", False)),
        gpus=int(settings.get("gpus", 1)),
    )


def _read_settings(module: ast.Module) -> dict[str, Any]:
    """The module's settings, which are literals."""
    return {
        target.id: ast.literal_eval(statement.value)
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in _SETTINGS
    }


def _read_expectations(module: ast.Module, source: str) -> dict[str, tuple[tuple[int, str], ...]]:
    """Marked lines by variant. A mark outside of ``fix`` is the pitfall's."""
    fix_lines = {
        line
        for statement in module.body
        if isinstance(statement, ast.FunctionDef) and statement.name == "fix"
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }
    marks = [
        (number, match[1]) for number, line in enumerate(source.splitlines(), 1) if (match := _EXPECTATION.search(line))
    ]
    return {
        "pitfall": tuple(mark for mark in marks if mark[0] not in fix_lines),
        "fix": tuple(mark for mark in marks if mark[0] in fix_lines),
    }
