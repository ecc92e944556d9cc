"""What the recording needs of PyTorch that PyTorch does not promise: each test fails with the name of what is gone.

The names are taken from the code, so that nothing private is used that no test would miss.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import profiler
from torch.utils.data import DataLoader, dataloader

import profkit

_PACKAGE = Path(profkit.__file__).parent
_ROOMS = ("collect", "memory_planner")
_ONLY_WITH_CUDA = ("_cuda_",)
"""A PyTorch without CUDA lacks them."""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _private(tree: ast.Module) -> Iterator[str]:
    """The private names of PyTorch that a file imports or reads, as ``torch._C._profiler``."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute):
            names = [_dotted(node)]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "torch" and any(part.startswith("_") and not part.endswith("__") for part in parts):
                yield name


def _used() -> dict[str, str]:
    found: dict[str, str] = {}
    for room in _ROOMS:
        for path in sorted((_PACKAGE / room).rglob("*.py")):
            for name in _private(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(name, str(path.relative_to(_PACKAGE)))
    return found


def _look_up(name: str) -> Any:
    """The object of a dotted name, importing as far as it is a module."""
    value: Any = torch
    parts = name.split(".")
    for at, part in enumerate(parts[1:], 2):
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(".".join(parts[:at]))
    return value


USED = _used()


def test_the_private_names_are_found() -> None:
    assert {"torch._C._current_graph_task_id", "torch._C._profiler._ExperimentalConfig"} <= set(USED)
    assert list(_private(ast.parse("import torch\ntorch.nn.Linear\ntorch.__version__"))) == []
    assert list(_private(ast.parse("from torch.utils._pytree import tree_map"))) == ["torch.utils._pytree.tree_map"]


@pytest.mark.parametrize("name", sorted(USED))
def test_pytorch_still_has_the_private_name(name: str) -> None:
    if any(part in name for part in _ONLY_WITH_CUDA) and not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch was built without CUDA")
    try:
        _look_up(name)
    except (AttributeError, ImportError) as gone:
        pytest.fail(f"{USED[name]} needs {name}, which this PyTorch lacks: {gone}")


def test_the_profilers_result_keeps_its_events_and_their_tree() -> None:
    with profiler.profile(use_kineto=True) as recorded:
        torch.ones(2) + 1
    assert callable(recorded.kineto_results.events)
    assert callable(recorded.kineto_results.experimental_event_tree)


def test_hooks_before_and_after_all_optimizers_can_be_added_and_take_the_optimizer_first() -> None:
    from torch.optim import optimizer

    seen: list[Any] = []
    handles = [
        optimizer.register_optimizer_step_pre_hook(lambda *given: seen.append(given)),
        optimizer.register_optimizer_step_post_hook(lambda *given: seen.append(given)),
    ]
    try:
        weight = torch.nn.Parameter(torch.ones(1))
        stepped = torch.optim.SGD([weight])
        weight.grad = torch.ones(1)
        stepped.step()
    finally:
        for handle in handles:
            handle.remove()
    assert [(given[0], len(given)) for given in seen] == [(stepped, 3)] * 2


def test_global_hooks_of_modules_see_the_module_its_arguments_and_the_result() -> None:
    seen: list[Any] = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: seen.append(given))
    try:
        layer = torch.nn.Identity()
        layer(1)
    finally:
        handle.remove()
    assert seen == [(layer, (1,), 1)]


def test_loaders_make_one_of_two_iterators_from_the_loader_alone() -> None:
    for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        assert list(inspect.signature(kind.__init__).parameters) == ["self", "loader"]
    assert type(iter(DataLoader([1, 2]))) is dataloader._SingleProcessDataLoaderIter
