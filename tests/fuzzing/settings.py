"""``[tool.profkit]`` of a project that somebody cloned: every value of another type, name or address."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from profkit.diagnosis.settings import EDITORS, Settings, is_left_out, read_settings
from profkit.findings.values import Finding, Location, Severity
from profkit.findings.values import Kind as FindingKind
from profkit.report.html.editor import link_to
from tests.fuzzing.hostile import TEXTS, damage_bytes, damage_tree, value
from tests.fuzzing.reports import expect
from tests.fuzzing.running import Files, Kind, Odd

_SEEDS: tuple[dict[str, Any], ...] = (
    {"select": ["host-sync-in-step"], "ignore": ["launch-bound"], "fail-on": "medium"},
    {"fail-on-opportunity": "high", "editor": "pycharm"},
    {"editor": "myeditor://open?file={file}&line={line}", "ignore": ["input-bound", "graph-break"]},
    {},
)
_SCHEMES = (
    "javascript",
    "data",
    "file",
    "https",
    "http",
    "vbscript",
    "blob",
    "JavaScript",
    "java\tscript",
    "about",
    "x",
)


def make(rng: random.Random) -> Files:
    table = json.loads(json.dumps(rng.choice(_SEEDS)))
    held = {"profkit": table}
    how = rng.randrange(6)
    if how == 0:
        damage_tree(rng, held, rng.choice((1, 2, 4)))
    elif how == 1:
        table[rng.choice(("select", "ignore"))] = [rng.choice((value(rng), rng.choice(TEXTS))) for _ in range(3)]
    elif how == 2:
        table[rng.choice(("select", "ignore", "fail-on", "fail-on-opportunity", "editor"))] = value(rng)
    elif how == 3:
        table["editor"] = (
            f"{rng.choice(_SCHEMES)}{rng.choice(('://', ':', ':/', ''))}{rng.choice(TEXTS)}{{file}}:{{line}}"
        )
    elif how == 4:
        table[rng.choice(TEXTS)] = value(rng)
    text = _toml(rng, held)
    content = text.encode("utf-8", "surrogatepass")
    files: dict[str, bytes | Odd] = {"pyproject.toml": damage_bytes(rng, content) if rng.random() < 0.3 else content}
    rules = rng.choice(("", "[launch-bound]", "[", f"[{rng.choice(TEXTS)}]", "[" + "a," * 3000 + "]", "[" + "-" * 9000))
    source = f"x = 1  # profkit: ignore{rules} {rng.choice(TEXTS)}"
    if rng.random() < 0.01:
        files["pyproject.toml"] = rng.choice(list(Odd))
    return {**files, "source": source.encode("utf-8", "surrogatepass")}


def _toml(rng: random.Random, held: dict[str, Any]) -> str:
    lines = ['[project]\nname = "x"\n']
    table = held.get("profkit", held)
    if not isinstance(table, dict):
        return f"[tool]\nprofkit = {_value(rng, table)}\n"
    lines.append("[tool.profkit]\n")
    for key, one in table.items():
        name = key if key.replace("-", "").isascii() and key.replace("-", "").isalnum() else _text(rng, key)
        lines.append(f"{name} = {_value(rng, one)}\n")
        if rng.random() < 0.03:
            lines.append(lines[-1])
    return "".join(lines)


def _value(rng: random.Random, one: Any) -> str:
    if isinstance(one, bool):
        return str(one).lower()
    if isinstance(one, (int, float)):
        return repr(one) if not isinstance(one, int) or one.bit_length() < 9000 else "1" * 5000
    if isinstance(one, str):
        return _text(rng, one)
    if isinstance(one, list):
        return f"[{', '.join(_value(rng, inner) for inner in one)}]"
    if isinstance(one, dict):
        return f"{{{', '.join(f'{_text(rng, str(key))} = {_value(rng, inner)}' for key, inner in one.items())}}}"
    return rng.choice(("", "1979-05-27T07:32:00Z", "[" * 1200, "{a=" * 1200, "'''x", "0o7", "inf"))


def _text(rng: random.Random, text: str) -> str:
    """Escaped as TOML wants it, or as it is."""
    return json.dumps(text, ensure_ascii=rng.random() < 0.3) if rng.random() < 0.9 else f'"{text}"'


def read(folder: Path) -> Callable[[], tuple[Settings, str]]:
    source = (folder / "source").read_bytes().decode("utf-8", "surrogatepass")
    location = Location(str(Path(__file__)), 7, "f", source)
    is_left_out(Finding("launch-bound", FindingKind.FAULT, Severity.LOW, "", 1, 1.0, "", location))
    settings = read_settings(folder)
    return partial(_link, settings, location)


def _link(settings: Settings, location: Location) -> tuple[Settings, str]:
    settings.wants("launch-bound")
    overridden = settings.overridden((), ("launch-bound",), None, None)
    expect(not overridden.wants("launch-bound"), "a rule that was ignored")
    return settings, link_to(location, settings.editor or "")


def check(linked: tuple[Settings, str]) -> None:
    """A link opens an editor: it runs nothing, and names no web address."""
    _, address = linked
    if address:
        scheme = address.partition(":")[0].lower()
        known = {template.partition(":")[0] for template in EDITORS.values()}
        expect(scheme in known or scheme not in _SCHEMES[:-1], f"the address {address!r:.100}")
        expect(not any(one.isspace() for one in address), f"the address {address!r:.100}")


KIND = Kind(
    "settings",
    20_000,
    make,
    read,
    check,
    found=(
        "The error for an unknown setting printed its control characters to the terminal.",
        "A number of more than 4,300 digits ended in ValueError.",
    ),
)
