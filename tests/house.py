"""How the house looks to somebody new to it, in figures.

    python -m tests.house [CHECKOUT]

prints them, of this checkout or of another, so that before and after can be compared.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.test_imports import rooms_that_need_each_other

ROOT = Path(__file__).parents[1]
_NO_ROOMS = {"__init__.py", "__main__.py"}
_SMALL = {0, 1, 2, -1, 0.5, 100, 1000, 1_000_000, 1_000_000_000}
"""Numbers that explain themselves: a half, a share in per cent, units of time."""


def figures(checkout: Path) -> dict[str, str]:
    package = checkout / "profkit"
    files = sorted(path for path in package.rglob("*.py") if "_scenarios" not in path.parts)
    trees = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in files}
    rules = [path for path in files if path.parent == package / "rules" and path.stem not in ("__init__", "base")]
    same = {name: count for name, count in Counter(path.name for path in files).items() if count > 1}
    same.pop("__init__.py", None)
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    unexplained = [name for tree in trees.values() for name in unexplained_numbers(tree)]
    return {
        "rooms and files at the top": str(len({path.relative_to(package).parts[0] for path in files} - _NO_ROOMS)),
        "files that share their name with another": str(sum(same.values())),
        "folders and files that import one another": str(len(rooms_that_need_each_other(package))),
        "lines of profkit": f"{sum(lines.values()):,}",
        "lines of a rule, median": f"{median(lines[path] for path in rules):.0f}",
        "modules that a rule imports, median": f"{median(len(set(_own_imports(trees[path]))) for path in rules):.0f}",
        "numbers without a reason beside them": str(len(unexplained)),
        "CONTRIBUTING.md, kB": f"{(checkout / 'CONTRIBUTING.md').stat().st_size / 1000:.1f}",
    }


def _own_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("profkit."):
            yield node.module or ""


def unexplained_numbers(tree: ast.Module) -> Iterator[str]:
    """The constants of a module that are numbers, without a docstring below them or below the group that they lead."""
    body = tree.body
    for at, node in enumerate(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(target, ast.Name):
            continue
        if _is_number(value) and not _is_followed_by_text(body, at):
            yield target.id


def _is_number(value: ast.AST | None) -> bool:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    return (
        isinstance(value, ast.Constant)
        and isinstance(value.value, (int, float))
        and not isinstance(value.value, bool)
        and value.value not in _SMALL
    )


def _is_followed_by_text(body: list[ast.stmt], at: int) -> bool:
    """A text explains the constants directly above it."""
    for node in body[at + 1 :]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return True
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            return False
    return False


def main() -> None:
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for label, figure in figures(checkout).items():
        print(f"{label:<45}{figure:>10}")


if __name__ == "__main__":
    main()
