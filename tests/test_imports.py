"""Imports go downwards only, wherever in a file they stand, and reading a trace never costs an import of torch.

Each layer knows those before it: a rule that opened a file, or a reader that knew of reports, could no longer be
tested or replaced alone.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from tests.forks import LONGEST_S

PACKAGE = Path(profkit.__file__).parent
LAYERS = (
    "core",
    "run",
    "source",
    "trace",
    "derive",
    "findings",
    "patterns",
    "savings",
    "rules",
    "diagnosis",
    "report",
    "integrations",
    "cli",
)
SIDE_DOORS = {"collect": {"core", "run", "source"}, "memory_planner": {"core", "source"}}
"""What they may import; they themselves are for the integrations, the command line and the public package only."""
LEVELS = {*LAYERS, *SIDE_DOORS}
ROOMS = tuple(re.findall(r"^``(\w+)``", profkit.__doc__ or "", re.MULTILINE))
"""In the order in which the package itself tells them."""
MOST_ROOMS = 15
_ITSELF = "profkit"
"""The package: what imports it from inside is in a circle with it."""
MOST_FILES = 20
DOORS = ("rules.base", "trace", "patterns", "savings")
"""They offer rules what several of them need, so that an author has few places to look."""
LEAST_USERS = 2
TOP = {"", "__main__", "cli"}
"""They may import anything."""
HEAVY = {
    # torch takes seconds to import, and a recorded trace must be readable where it is not installed.
    "torch": {"collect", "memory_planner"},
    # The other reports are plain text and must not pay for it.
    "rich": {"cli"},
    # Only who changes a program needs its concrete syntax tree; its import takes a fifth of a second.
    "libcst": {"rules.changes"},
    # These are no dependencies: only who uses one imports the module for it.
    "lightning": {"integrations.lightning"},
    "pytorch_lightning": {"integrations.lightning"},
    "transformers": {"integrations.transformers"},
    "IPython": {"integrations.ipython"},
    "ray": {"diagnosis.launch.on_ray"},
    "fsspec": {"diagnosis.launch.remote"},
    "pytest": {"integrations.pytest_plugin", "integrations.pytest_checks"},
}


def _modules(package: Path = PACKAGE) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


@functools.cache
def _imports_of(module: str, path: Path) -> tuple[str, ...]:
    return tuple(_imports(module, ast.parse(path.read_text(encoding="utf-8"), str(path))))


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    """The full name of each imported module, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{_origin(module, node)}.{alias.name}" for alias in node.names)


def _origin(module: str, node: ast.ImportFrom) -> str:
    assert node.level == 0, f"{module}: relative imports hide what is imported; write the whole name"
    return node.module or ""


def _layer(name: str) -> str:
    """``'profkit.trace.events.Trace'`` → ``'trace'``; what the package itself defines belongs to no layer."""
    part = name.removeprefix("profkit").lstrip(".").partition(".")[0]
    return part if part in {*LAYERS, *SIDE_DOORS} else ""


def _may_import(importer: str, imported: str) -> bool:
    if importer in TOP or importer == imported or (importer == "integrations" and imported in SIDE_DOORS):
        return True
    if importer in SIDE_DOORS:
        return imported in SIDE_DOORS[importer]
    return imported in LAYERS and LAYERS.index(imported) < LAYERS.index(importer)


@pytest.mark.parametrize(("module", "path"), list(_modules()))
def test_imports_go_downwards_only(module, path):
    importer = module.partition(".")[0]
    for name in _imports_of(module, path):
        if name.partition(".")[0] == "profkit":
            assert _may_import(importer, _layer(name)), f"{module} imports {name}"


def rooms_that_need_each_other(package: Path = PACKAGE) -> list[str]:
    """At each level of the tree the files and folders that cannot be put in an order, for they import one another. The
    package itself counts as one that lies above all."""
    needs: dict[tuple[str, str], set[str]] = {}
    known = {module.partition(".")[0] for module, _ in _modules(package)} - TOP
    for module, path in _modules(package):
        for name in _imports_of(module, path):
            here, there = module.split("."), name.removeprefix("profkit.").split(".")
            level = next((at for at, (own, other) in enumerate(zip(here, there, strict=False)) if own != other), None)
            is_own = name.startswith("profkit.") and level is not None and here[0] not in TOP
            if is_own and level is not None and there[0] in known:
                needs.setdefault((".".join(here[:level]), here[level]), set()).add(there[level])
            elif name.partition(".")[0] == "profkit" and there[0] not in known and here[0] in known:
                needs.setdefault(("", here[0]), set()).add(_ITSELF)
    needs["", _ITSELF] = known
    while free := [key for key, others in needs.items() if not any((key[0], other) in needs for other in others)]:
        for key in free:
            del needs[key]
    return sorted(f"{level}: {room}" for level, room in needs)


def test_files_and_folders_of_one_folder_import_each_other_in_one_direction_only():
    assert rooms_that_need_each_other() == []


def _offered_to_rules() -> dict[str, str]:
    """What the doors offer: where each is defined, and the name by which rules import it."""
    offered = {}
    for door in (importlib.import_module(f"profkit.{name}") for name in DOORS):
        for node in ast.parse(Path(door.__file__).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names} & {*door.__all__}
                offered.update((f"{node.module}.{name}", f"{door.__name__}.{name}") for name in names)
    return offered


def test_rules_import_through_the_doors_and_the_doors_offer_only_what_several_rules_need():
    imports = Counter(name for module, path in _modules() if _is_rule(module) for name in _imports_of(module, path))
    offered = _offered_to_rules()
    assert {defined: f"import {name}" for defined, name in offered.items() if imports[defined]} == {}
    assert {name for name in offered.values() if imports[name] < LEAST_USERS} == set()


def _is_rule(module: str) -> bool:
    room, _, name = module.partition(".")
    return room == "rules" and name not in ("", "base")


@pytest.mark.parametrize("room", [door for door in DOORS if "." not in door])
def test_the_files_of_a_room_do_not_import_from_its_door(room):
    """That would be a circle: the door imports them."""
    offered = {f"profkit.{room}.{name}" for name in importlib.import_module(f"profkit.{room}").__all__}
    assert [
        module
        for module, path in _modules()
        if module.startswith(f"{room}.") and offered & {*_imports_of(module, path)}
    ] == []


def test_no_folder_is_a_heap():
    """Rules, their changes, and commands are the exception: one file each, which import no other."""
    exceptions = {PACKAGE / "rules", PACKAGE / "rules" / "changes", PACKAGE / "cli"}
    folders = {path.parent for _, path in _modules()} - exceptions
    assert {str(folder): count for folder in folders if (count := len(list(folder.glob("*.py")))) > MOST_FILES} == {}


def test_every_module_belongs_to_a_room_and_the_package_tells_all_of_them_in_order():
    assert {module.partition(".")[0] for module, _ in _modules()} - {"", "__main__"} == LEVELS == set(ROOMS)
    assert len(ROOMS) <= MOST_ROOMS
    assert tuple(room for room in ROOMS if room in LAYERS) == LAYERS


@pytest.mark.parametrize("heavy", sorted(HEAVY))
def test_heavy_packages_are_imported_only_where_they_are_needed(heavy):
    importers = {
        module for module, path in _modules() for name in _imports_of(module, path) if name.partition(".")[0] == heavy
    }
    allowed = {module for module in importers if any((module + ".").startswith(home + ".") for home in HEAVY[heavy])}
    assert importers == allowed


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("trace", "run", True),
        ("trace", "derive", False),
        ("rules", "report", False),
        ("savings", "findings", True),
        ("collect", "trace", False),
        ("collect", "run", True),
        ("diagnosis", "collect", False),
        ("diagnosis", "rules", True),
        ("rules", "diagnosis", False),
        ("savings", "rules", False),
        ("patterns", "core", True),
        ("cli", "collect", True),
        ("", "collect", True),
        ("derive", "", False),
        ("integrations", "", False),
        ("integrations", "collect", True),
        ("report", "integrations", False),
    ],
)
def test_the_layers_have_the_designed_order(importer, imported, allowed):
    assert _may_import(importer, imported) is allowed


def test_imports_inside_functions_count():
    tree = ast.parse("class A:\n def f(self):\n  from profkit.report import text\nimport torch.nn")
    found = set(_imports("findings", tree))
    assert found == {"profkit.report.text", "torch.nn"}


def _imported_by(statement: str) -> set[str]:
    """The top-level packages that a fresh process has imported after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=LONGEST_S, check=True
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import profkit.diagnosis.pipeline", "from profkit.rules import all_rules; all_rules()", "import profkit.report"],
)
def test_diagnosing_imports_neither_torch_nor_rich(statement):
    imported = _imported_by(statement)
    assert "profkit" in imported
    assert imported.isdisjoint({"torch", "rich", "tensorboard"})


def test_no_test_of_rules_imports_torch():
    """They judge traces written by hand, so a rule can be worked on where PyTorch is not installed, and tried in a
    second."""
    modules = [f"tests.rules.{path.stem}" for path in sorted(Path(__file__).with_name("rules").glob("*.py"))]
    imported = _imported_by(f"import {', '.join(modules)}")
    assert len(modules) > 70
    assert "torch" not in imported


def test_importing_profkit_costs_nothing():
    assert _imported_by("import profkit").isdisjoint({"torch", "rich", "numpy", "msgspec", "click", "tensorboard"})
