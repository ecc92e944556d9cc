"""Programs with a known fix: the scenarios that run here, and folders with ``fault.py`` and ``fix.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from profkit.diagnosis.catalogue import ANOTHER_RESULT, NOTHING, list_scenarios

ROUNDS = 3
"""A scenario's two dozen steps take as long as the import of PyTorch; three times as many show more."""
_SEVERAL = re.compile(r"^processes = ", re.MULTILINE)
_RUNNER = """

if __name__ == "__main__":
    import sys

    state, results = setup("cpu"), []
    for _ in range({rounds}):
        for result in fix(state) if sys.argv[1:] == ["fix"] else pitfall(state):
            results.append(result.detach().double().sum())
    print(*(f"{{result:.5g}}" for result in torch.stack(results).tolist()))
"""
"""Runs one of the variants as a program of its own, and prints what each step computes."""


@dataclass(frozen=True)
class Case:
    """A program in a folder of its own; ``fixed`` is how the same program runs with its known fix: another file, or
    other arguments."""

    name: str
    program: str
    text: str
    fixed: str
    fixed_arguments: tuple[str, ...] = ()
    fixed_text: str = ""

    def lay_out(self, folder: Path) -> Path:
        """Write the program's files, and return the one that is to be fixed."""
        folder.mkdir(parents=True)
        (folder / self.program).write_text(self.text, encoding="utf-8")
        if self.fixed_text:
            (folder / self.fixed).write_text(self.fixed_text, encoding="utf-8")
        return folder / self.program


def scenarios() -> list[Case]:
    """Those of one process whose fix shows on a CPU."""
    chosen = [one for one in list_scenarios() if not one.needs_gpu and one.triggers]
    return [
        _of_scenario(one.name, one.path.read_text(encoding="utf-8"))
        for one in chosen
        if one.effect not in (NOTHING, ANOTHER_RESULT, "time on a GPU") and not _SEVERAL.search(one.path.read_text())
    ]


def _of_scenario(name: str, text: str) -> Case:
    file = f"{name.replace('-', '_')}.py"
    return Case(name, file, text + _RUNNER.format(rounds=ROUNDS), file, ("fix",))


def programs(folder: Path) -> list[Case]:
    """The programs of a folder: each in a folder of its own, as ``fault.py`` and ``fix.py``."""
    return [
        Case(fault.parent.name, "fault.py", fault.read_text(encoding="utf-8"), "fix.py", (), fix.read_text("utf-8"))
        for fault in sorted(folder.glob("*/fault.py"))
        if (fix := fault.with_name("fix.py")).exists()
    ]
