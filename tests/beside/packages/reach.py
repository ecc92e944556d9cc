"""``python reach.py PROGRAM PACKAGE``: who asks for torch while PACKAGE is imported, and then while PROGRAM imports the
rest, up to its own import of torch. Prints JSON.

It runs alone in the package's environment, where this checkout need not be importable.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import FrameType

_IMPORTS = (ast.Import, ast.ImportFrom)


class Listener:
    """A finder that finds nothing and notes who looks for torch: a question, or an import."""

    def __init__(self) -> None:
        self.stage = ""
        self.heard: list[dict[str, str]] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            kind, asker = _asker(sys._getframe(1))
            self.heard.append({"stage": self.stage, "kind": kind, "asker": asker})


def _asker(frame: FrameType | None) -> tuple[str, str]:
    """Whether a frame of Python's import system below is an import, and the module that asked."""
    is_import = False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("importlib", "_frozen_importlib")):
            return "import" if is_import else "question", module
        is_import |= frame.f_code.co_name == "_find_and_load"
        frame = frame.f_back
    return "import", "?"


def _first_statements(program: Path) -> list[ast.stmt]:
    """The program's imports and the settings before them, up to its own import of torch."""
    kept = []
    for statement in ast.parse(program.read_text(encoding="utf-8")).body:
        is_setting = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
        if not isinstance(statement, _IMPORTS) and not is_setting:
            break
        if any(name.split(".")[0] == "torch" for name in _imported(statement)):
            break
        kept.append(statement)
    return kept


def _imported(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [statement.module or ""]
    return [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []


def main(program: Path, package: str) -> None:
    sys.path[0] = str(program.parent)  # as when the program runs
    listener = Listener()
    sys.meta_path.insert(0, listener)
    names: dict[str, object] = {"__name__": "__main__"}
    statements = _first_statements(program)
    of_package = [any(name.split(".")[0] == package for name in _imported(one)) for one in statements]
    before = statements[: of_package.index(True)]
    exec(compile(ast.Module(before, []), str(program), "exec"), names)
    listener.stage = f"import {package}"
    exec(listener.stage, {})
    after_package = "torch" in sys.modules
    lazily = ""
    for statement in statements[len(before) :]:
        had = "torch" in sys.modules
        listener.stage = ast.unparse(statement)
        exec(compile(ast.Module([statement], []), str(program), "exec"), names)
        if "torch" in sys.modules and not had:
            lazily = listener.stage
    print(json.dumps({"after_package": after_package, "lazily": lazily, "heard": listener.heard}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
