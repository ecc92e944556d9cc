"""Programs with a known fix: the scenarios that run here, and folders with a fault and its fix."""

from __future__ import annotations

import ast
import re
import shutil
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
    """A file, or a package that ``-m`` runs."""
    text: str = ""
    fixed: str = ""
    fixed_text: str = ""
    rule: str = ""
    """The only one whose changes are tried, if not all. Of such a program no fix needs to be known."""
    is_of_memory: bool = False
    """Whether the known fix saves memory, not time."""
    files: Path | None = None
    """The folder that holds both, in place of the texts."""

    @property
    def is_module(self) -> bool:
        return not self.program.endswith(".py")

    @property
    def known_text(self) -> str | None:
        """The text of the known fix; None of a package, which has several."""
        if self.files is None:
            return self.fixed_text
        return None if self.is_module else (self.files / self.fixed).read_text(encoding="utf-8")

    def lay_out(self, folder: Path) -> Path:
        """Write the program's files, and return the one that is to be fixed."""
        if self.files is not None:
            shutil.copytree(self.files, folder, ignore=shutil.ignore_patterns("__pycache__"))
            return folder / self.program
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
    """The programs of a folder: each in a folder of its own, as ``fault.py`` and ``fix.py`` with the modules that they
    import, or as the packages ``fault`` and ``fix``."""
    mains = (("fault.py", "fix.py"), ("fault/__main__.py", "fix/__main__.py"))
    return [
        Case(one.name, fault.partition("/")[0], fixed=fix.partition("/")[0], files=one)
        for one in sorted(folder.iterdir())
        for fault, fix in mains
        if (one / fault).exists() and (one / fix).exists()
    ]
