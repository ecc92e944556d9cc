"""Programs with a known fix: the scenarios that run here, and folders with ``fault.py`` and ``fix.py``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.diagnosis.catalogue import ANOTHER_RESULT, NOTHING, list_scenarios
from tests.end_to_end.programs import all_programs

ROUNDS = 3
"""A scenario's two dozen steps take as long as the import of PyTorch; three times as many show more."""
MARK = re.compile(r" *# expect: \S+$", re.MULTILINE)
_SEVERAL = re.compile(r"^processes = ", re.MULTILINE)
_RUNNER = """

if __name__ == "__main__":
    state, results = setup("cpu"), []
    for _ in range({rounds}):
        for result in {variant}(state):
            results.append(result.detach().double().sum())
    print(*(f"{{result:.5g}}" for result in torch.stack(results).tolist()))
"""
"""Runs one of the variants as a program of its own, and prints what each step computes."""
_OTHER = {"pitfall": "fix", "fix": "pitfall"}


@dataclass(frozen=True)
class Case:
    """A program in a folder of its own, and ``fixed`` beside it: the same with its known fix."""

    name: str
    program: str
    text: str
    fixed: str = ""
    fixed_text: str = ""
    rule: str = ""
    """The only one whose changes are tried, if not all. Of such a program no fix needs to be known."""
    is_of_memory: bool = False
    """Whether the known fix saves memory, not time."""

    def lay_out(self, folder: Path) -> Path:
        """Write the program's files, and return the one that is to be fixed."""
        folder.mkdir(parents=True)
        (folder / self.program).write_text(self.text, encoding="utf-8")
        if self.fixed:
            (folder / self.fixed).write_text(self.fixed_text, encoding="utf-8")
        return folder / self.program


def scenarios() -> list[Case]:
    """Those of one process whose fix shows on a CPU."""
    chosen = [one for one in list_scenarios() if not one.needs_gpu and one.triggers]
    return [
        replace(_of_scenario(one.name, one.path.read_text(encoding="utf-8")), is_of_memory=one.effect == "memory")
        for one in chosen
        if one.effect not in (NOTHING, ANOTHER_RESULT, "time on a GPU") and not _SEVERAL.search(one.path.read_text())
    ]


def _of_scenario(name: str, text: str) -> Case:
    module = name.replace("-", "_")
    return Case(name, f"{module}.py", _variant(text, "pitfall"), f"{module}_fixed.py", _variant(text, "fix"))


def _variant(text: str, name: str) -> str:
    """The program of one variant, without the other: nothing outside of it tells how it could be done."""
    other = next(one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == _OTHER[name])
    lines = text.splitlines(keepends=True)
    begin = min([other.lineno, *(one.lineno for one in other.decorator_list)])
    kept = [*lines[: begin - 1], *lines[other.end_lineno :]]
    return "".join(kept) + _RUNNER.format(rounds=ROUNDS, variant=name)


def labelled() -> list[Case]:
    """The programs that name the rule of their fault, without the comments that do, where their libraries are."""
    return [
        Case(one.path.stem, one.path.name, MARK.sub("", one.path.read_text(encoding="utf-8")), rule=one.expected[1])
        for one in all_programs()
        if one.expected is not None and not one.missing
    ]


def programs(folder: Path) -> list[Case]:
    """The programs of a folder: each in a folder of its own, as ``fault.py`` and ``fix.py``."""
    return [
        Case(
            fault.parent.name, "fault.py", fault.read_text(encoding="utf-8"), "fix.py", fix.read_text(encoding="utf-8")
        )
        for fault in sorted(folder.glob("*/fault.py"))
        if (fix := fault.with_name("fix.py")).exists()
    ]
