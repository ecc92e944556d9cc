"""Nothing writes or renames files past `profkit.core.files.writing`, except for what is no file of a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit

PACKAGE = Path(profkit.__file__).parent
EXEMPT = {
    "core/files/writing.py": "it is the door",
    "findings/values.py": "a path that the user gives",
    "trace/cache.py": "the user's cache folder",
    "collect/machine/rates.py": "the user's cache folder",
    "collect/stacks/spying.py": "py-spy's own words, in a temporary folder",
    "collect/launch/other_batch.py": "what a trial's run left, in a temporary folder",
    "collect/launch/trial.py": "/proc",
    "collect/launch/bits.py": "what a run left, in a temporary folder",
    "collect/launch/turn.py": "what a run left, in a temporary folder",
    "collect/ranks/folders.py": "opened only if absent; a folder that takes its final name",
    "collect/sessions/exporting.py": "appends to the file that Kineto has just written, under a name of its own",
    "diagnosis/fixing/patches.py": "the program's own files, as asked for with --write",
    "diagnosis/fixing/slices.py": "copies, and what tells a run of its stops, in a temporary folder",
    "diagnosis/fixing/trees.py": "a copy in a temporary folder",
    "diagnosis/fixing/turns.py": "a run's output, in a temporary folder",
    "diagnosis/launch/remote.py": "a copy in a temporary folder",
    "report/html/precompiling.py": "a wheel, while it is built",
    "integrations/pytest_baselines.py": "a folder that takes its final name",
    "cli/record.py": "a folder that takes its final name",
    "cli/fix.py": "a path that the user gives",
}


def writes(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_os = isinstance(owner, ast.Name) and owner.id == "os"
        if (
            (owner is not None and name in {"write_text", "write_bytes", "rename", "touch", "symlink_to"})
            or (name == "replace" and len(node.args) == 1 and not node.keywords)
            or (name == "replace" and is_os)
            or (name == "open" and any(set(text) & set("wax+") and len(text) <= 3 for text in texts))
        ):
            yield ast.unparse(node)


def test_files_are_written_through_one_door() -> None:
    found = {
        str(path.relative_to(PACKAGE)): calls
        for path in PACKAGE.rglob("*.py")
        if (calls := list(writes(path.read_text(encoding="utf-8"))))
    }
    assert {path: calls for path, calls in found.items() if path not in EXEMPT} == {}
    assert set(found) == set(EXEMPT), "an exemption that nobody needs"


@pytest.mark.parametrize(
    "call",
    [
        "path.write_text('')",
        "os.replace(a, b)",
        "path.replace(b)",
        "path.open('wb')",
        "open(path, 'a')",
        "path.touch()",
    ],
)
def test_each_way_to_write_is_seen(call: str) -> None:
    assert list(writes(call))


@pytest.mark.parametrize(
    "call", ["replace(run, trace=None)", "text.replace('a', 'b')", "path.open('rb')", "open(path)"]
)
def test_other_calls_are_no_writes(call: str) -> None:
    assert not list(writes(call))
