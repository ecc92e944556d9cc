"""The line that makes a name hold more."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from profkit.run import CallSite
from profkit.source.growth import GrowthLines, Origin
from profkit.source.syntax import Parts

Find = Callable[..., CallSite | None]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Finds the line for a name in a source; ``function`` is where it is a local variable, ``owner`` its class."""

    def search(
        source: str, parts: Parts, *, function: str | None = None, owner: str | None = None, executed: str = ""
    ) -> CallSite | None:
        source = textwrap.dedent(source)
        path = tmp_path / "program.py"
        path.write_text(source)
        ran = {number for number, line in enumerate(source.splitlines(), 1) if executed and executed in line}
        code = code_of(compile(source, str(path), "exec"), function) if function else None
        root = Origin(str(path), code)
        origin = Origin(str(path), owner=owner, skip=1, around=root) if owner else root
        return GrowthLines(lambda file, line: line in ran).find(parts, origin)

    return search


def code_of(code: CodeType, name: str) -> CodeType:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for constant in inner:
        if constant.co_name == name:
            return constant
    return next(found for constant in inner if (found := code_of(constant, name)))


@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ("kept.append(loss)", ("kept",)),
        ("kept.extend([loss])", ("kept",)),
        ("kept.insert(0, loss)", ("kept",)),
        ("kept.appendleft(loss)", ("kept",)),
        ("kept.add(loss)", ("kept",)),
        ("heapq.heappush(kept, (step, loss))", ("kept",)),
        ("insort(kept, loss)", ("kept",)),
        ("kept += [loss]", ("kept",)),
        ("kept = kept + loss", ("kept",)),
        ("kept = torch.cat([kept, loss])", ("kept",)),
        ("kept[step] = loss", ("kept",)),
        ("kept['loss'].append(loss)", ("kept", "['loss']")),
        ("kept[name].append(loss)", ("kept", "['loss']")),
        ("kept.setdefault('loss', []).append(loss)", ("kept", "['loss']")),
        ("kept[name] = kept.get(name, 0) + loss", ("kept", "['loss']")),
        ("kept.update(loss=loss)", ("kept", "['loss']")),
        ("kept[name].append(loss)", ("kept",)),
        ("(first := loss)", ("first",)),
        ("kept: list = kept + [loss]", ("kept",)),
        ("other, kept = kept, loss", ("kept",)),
        ("kept = loss", ("kept",)),
    ],
)
def test_every_way_to_make_a_name_hold_more_is_seen(find: Find, statement: str, parts: Parts) -> None:
    source = f"""
    def train():
        kept = []
        for step in range(3):
            loss = step
            {statement}
    """
    site = find(source, parts, function="train")
    assert site is not None
    assert (site.source, site.function) == (statement, "train")


def test_an_assignment_outside_a_loop_makes_nothing_grow(find: Find) -> None:
    assert find("kept = []\nother = kept\n", ("kept",)) is None


def test_an_extension_comes_before_an_assignment_in_a_loop(find: Find) -> None:
    source = """
    for epoch in range(2):
        kept = []
        for step in range(3):
            kept.append(step)
    """
    site = find(source, ("kept",))
    assert site is not None
    assert site.source == "kept.append(step)"


def test_a_line_in_a_loop_comes_before_one_outside(find: Find) -> None:
    source = """
    kept.append(0)
    for step in range(3):
        kept.append(step)
    """
    site = find(source, ("kept",))
    assert site is not None
    assert site.source == "kept.append(step)"


def test_a_line_that_was_seen_to_run_comes_first(find: Find) -> None:
    source = """
    for step in range(3):
        kept.append(step)
    kept += [1]  # ran
    """
    site = find(source, ("kept",), executed="# ran")
    assert site is not None
    assert site.source == "kept += [1]  # ran"


def test_a_local_name_is_looked_for_in_its_own_function(find: Find) -> None:
    source = """
    def other():
        for step in range(3):
            kept.append(step)

    def train():
        for step in range(3):
            kept.append(-step)
    """
    site = find(source, ("kept",), function="train")
    assert site is not None
    assert site.line == 8
    assert find(source.replace("-step", "-step)\n        print(step"), ("absent",), function="train") is None


def test_an_attribute_is_looked_for_in_the_methods_of_its_class(find: Find) -> None:
    source = """
    class Trainer:
        def __init__(self):
            self.history = []

        def step(this, loss):
            this.history.append(loss)

    class Other:
        def step(self, loss):
            self.history.append(-loss)

    def main():
        trainer = Trainer()
    """
    site = find(source, ("trainer", ".history"), function="main", owner="Trainer")
    assert site is not None
    assert (site.line, site.function) == (7, "Trainer.step")


def test_an_attribute_bound_in_a_method_is_found_but_not_in_the_constructor(find: Find) -> None:
    source = """
    class Model:
        def __init__(self):
            self.hidden = None

        def forward(self, x):
            self.hidden = x
    """
    site = find(source, ("model", ".hidden"), owner="Model")
    assert site is not None
    assert site.line == 7


def test_an_attribute_changed_from_outside_is_found_around_its_class(find: Find) -> None:
    source = """
    class Results:
        pass

    def main():
        results = Results()
        for step in range(3):
            results.losses.append(step)
    """
    site = find(source, ("results", ".losses"), function="main", owner="Results")
    assert site is not None
    assert site.line == 8


def test_a_nested_function_is_named_as_python_names_it(find: Find) -> None:
    source = """
    def main():
        total = 0

        def record(loss):
            nonlocal total
            total += loss
    """
    site = find(source, ("total",), function="main")
    assert site is not None
    assert site.function == "main.<locals>.record"


@pytest.mark.parametrize("source", ["def broken(:\n", "", "kept.append(1)\n" * 80_000])
def test_a_file_that_cannot_be_read_as_source_has_no_such_line(find: Find, source: str) -> None:
    assert find(source, ("kept",)) is None


def test_a_file_that_does_not_exist_has_no_such_line() -> None:
    assert GrowthLines(lambda file, line: False).find(("kept",), Origin("/nowhere/at/all.py")) is None


def test_functions_made_by_decorators_are_recognised(find: Find) -> None:
    source = """
    @decorate
    @again
    def train():
        for step in range(3):
            kept.append(step)
    """
    site = find(source, ("kept",), function="train")
    assert site is not None
    assert site.line == 6
