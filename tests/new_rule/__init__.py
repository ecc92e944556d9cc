"""The three files of a new rule, made from templates: a rule that works, its test and its scenario.

    python -m tests.new_rule NAME

What the templates look for, a sort whose first element alone is used, stands for what the new rule will.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

_TEMPLATES = Path(__file__).parent
FILES = {
    "rule.txt": "profkit/rules/{}.py",
    "test.txt": "tests/rules/test_{}.py",
    "scenario.txt": "scenarios/{}.py",
}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


class Refused(Exception):
    """The message says why."""


def make_rule(name: str, checkout: Path) -> list[Path]:
    """Write the three files of the rule ``name`` into a checkout of profkit; none where one of them is there."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name for a rule: two words or more in lower case, joined by hyphens")
    module = name.replace("-", "_")
    paths = {template: checkout / path.format(module) for template, path in FILES.items()}
    for path in paths.values():
        if path.exists():
            raise Refused(f"{path} exists")
    for template, path in paths.items():
        text = Template((_TEMPLATES / template).read_text(encoding="utf-8"))
        path.write_text(text.substitute(name=name, module=module), encoding="utf-8")
    return list(paths.values())
