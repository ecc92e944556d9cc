"""The line that makes a name hold more, and whether anything limits that growth."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from profkit.run.directory import CallSite
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


def located(site: CallSite | None) -> CallSite:
    assert site is not None
    return site


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
def test_every_way_to_make_a_name_hold_more_is_found(find, statement, parts):
    source = f"""
    def train():
        kept = []
        for step in range(3):
            loss = step
            {statement}
    """
    site = located(find(source, parts, function="train"))
    assert (site.source, site.function) == (statement, "train")


def test_an_assignment_outside_a_loop_makes_nothing_grow(find):
    assert find("kept = []\nother = kept\n", ("kept",)) is None


def test_an_append_in_a_loop_comes_before_an_assignment_there(find):
    source = """
    for epoch in range(2):
        kept = []
        for step in range(3):
            kept.append(step)
    """
    assert located(find(source, ("kept",))).source == "kept.append(step)"


def test_a_line_in_a_loop_comes_before_one_outside(find):
    source = """
    kept.append(0)
    for step in range(3):
        kept.append(step)
    """
    assert located(find(source, ("kept",))).source == "kept.append(step)"


def test_a_line_that_ran_comes_first(find):
    source = """
    for step in range(3):
        kept.append(step)
    kept += [1]  # ran
    """
    assert located(find(source, ("kept",), executed="# ran")).source == "kept += [1]  # ran"


def test_a_local_name_is_searched_in_its_own_function(find):
    source = """
    def other():
        for step in range(3):
            kept.append(step)

    def train():
        for step in range(3):
            kept.append(-step)
    """
    assert located(find(source, ("kept",), function="train")).line == 8
    assert find(source.replace("-step", "-step)\n        print(step"), ("absent",), function="train") is None


def test_an_attribute_is_searched_in_the_methods_of_its_class(find):
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
    site = located(find(source, ("trainer", ".history"), function="main", owner="Trainer"))
    assert (site.line, site.function) == (7, "Trainer.step")


def test_an_attribute_is_found_where_a_method_binds_it_but_not_in_the_constructor(find):
    source = """
    class Model:
        def __init__(self):
            self.hidden = None

        def forward(self, x):
            self.hidden = x
    """
    assert located(find(source, ("model", ".hidden"), owner="Model")).line == 7


def test_an_attribute_changed_outside_its_class_is_found(find):
    source = """
    class Results:
        pass

    def main():
        results = Results()
        for step in range(3):
            results.losses.append(step)
    """
    assert located(find(source, ("results", ".losses"), function="main", owner="Results")).line == 8


def test_a_nested_function_has_its_qualified_name(find):
    source = """
    def main():
        total = 0

        def record(loss):
            nonlocal total
            total += loss
    """
    assert located(find(source, ("total",), function="main")).function == "main.<locals>.record"


@pytest.mark.parametrize("source", ["def broken(:\n", "", "kept.append(1)\n" * 80_000])
def test_an_unreadable_file_has_no_such_line(find, source):
    assert find(source, ("kept",)) is None


def test_a_missing_file_has_no_such_line():
    assert GrowthLines(lambda file, line: False).find(("kept",), Origin("/nowhere/at/all.py")) is None


def test_decorated_functions_are_recognised(find):
    source = """
    @decorate
    @again
    def train():
        for step in range(3):
            kept.append(step)
    """
    assert located(find(source, ("kept",), function="train")).line == 6


@pytest.fixture
def is_bounded(tmp_path: Path) -> Callable[[str], bool]:
    def ask(body: str) -> bool:
        path = tmp_path / "program.py"
        path.write_text("kept = []\n" + textwrap.dedent(body))
        return GrowthLines(lambda file, line: False).is_bounded(("kept",), Origin(str(path)))

    return ask


@pytest.mark.parametrize(
    "body",
    [
        "kept.clear()",
        "kept.pop(0)",
        "heapq.heappushpop(kept, x)",
        "del kept[0]",
        "del kept",
        "kept = kept[-100:]",
        "for epoch in epochs:\n    kept = []",
        "if len(kept) < 100:\n    kept.append(x)",
        "while 100 < len(kept):\n    kept = kept[1:]",
        "if key not in kept:\n    kept[key] = x",
        "if key in kept:\n    use(kept[key])\nelse:\n    kept[key] = x",
        "if len(kept) >= limit:\n    kept[i % limit] = x\nelse:\n    kept.append(x)",
        "while not len(kept) >= 9:\n    kept.append(x)",
        "if wanted and len(kept) <= 9:\n    kept.append(x)",
        "for x in xs:\n    if done or 9 < len(kept):\n        break\n    kept.append(x)",
        "def trim(rows):\n    del rows[0]\nif len(kept) > 9:\n    trim(kept)",
        "if len(kept) > 9:\n    evict(kept)",
        "torch.cat(kept)",
        "torch.stack(kept, dim=1)",
        "cat(kept).mean()",
    ],
)
def test_growth_that_the_program_limits_is_bounded(is_bounded, body):
    assert is_bounded("for x in xs:\n    kept.append(x)\n" + body)


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "other.clear()",
        "kept = [*kept, x]",
        "total = sum(kept)",
        "if len(kept) % 10 == 0:\n    print(len(kept))",
        "torch.stack([x.mean() for x in kept])",
        "if len(kept) > 9:\n    mean = sum(kept) / len(kept)",
        "if len(kept) < 9:\n    print('a few')",
        "def train():\n    if len(kept) < batch:\n        return\n    learn(kept)",
        "def smooth():\n    if len(kept) > 9:\n        return kept[-9:]",
        "for x in xs:\n    if len(kept) < 9:\n        continue\n    kept.append(x)",
        "if key in kept:\n    print(key)",
        "if wanted or len(kept) < 9:\n    kept.append(x)",
        "def draw(rows):\n    plot(rows)\nif len(kept) > 9:\n    draw(kept)",
        "if len(kept) > 9:\n    print(kept)",
        "share = len(kept) < 9",
        "for epoch in epochs:\n    other = []",
    ],
)
def test_growth_that_nothing_limits_is_not_bounded(is_bounded, body):
    assert not is_bounded("for x in xs:\n    kept.append(x)\n" + body)


def test_an_attribute_that_a_method_empties_is_bounded(tmp_path):
    path = tmp_path / "program.py"
    methods = (f"    def {name}(self):\n        self.kept = []\n" for name in ("__init__", "reset"))
    path.write_text("class Meter:\n" + "".join(methods))
    growth = GrowthLines(lambda file, line: False)
    origin = Origin(str(path), owner="Meter", skip=1, around=Origin(str(path)))
    assert growth.is_bounded(("meter", ".kept"), origin)
    assert not growth.is_bounded(("meter", ".other"), origin)


def test_the_line_that_limits_the_growth_does_not_make_it(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("kept = []\nfor x in xs:\n    kept.append(x)\n    if len(kept) > 9:\n        kept.pop(0)\n")
    site = GrowthLines(lambda file, line: True).find(("kept",), Origin(str(path)))
    assert site is not None
    assert site.line == 3


def begins_anew(tmp_path: Path, source: str, parts: Parts, owner: str | None = None) -> bool:
    path = tmp_path / f"program_{len(list(tmp_path.iterdir()))}.py"  # files are read once
    path.write_text(textwrap.dedent(source))
    root = Origin(str(path))
    origin = Origin(str(path), owner=owner, skip=1, around=root) if owner else root
    return GrowthLines(lambda *_: True).begins_anew(parts, origin)


@pytest.mark.parametrize(
    "restart",
    [
        "losses = []",
        "losses, hits = [], 0",
        "losses: list = list()",
        "losses = torch.zeros(3)",
        "losses = {'kept': [], 'lost': 0.0}",
        "losses.clear()",
        "del losses[:]",
    ],
)
def test_what_is_emptied_in_a_loop_begins_anew(tmp_path: Path, restart: str) -> None:
    body = f"{restart}\n    for x in xs:\n        losses.append(f(x))"
    assert begins_anew(tmp_path, f"for epoch in range(3):\n    {body}", ("losses",))
    outside = f"losses = []\nfor epoch in range(3):\n    for x in xs:\n        losses.append(f(x))\n{restart}"
    assert not begins_anew(tmp_path, outside, ("losses",))


@pytest.mark.parametrize(
    "line", ["h = cell(x, h)", "h = new", "h = h[-8:]", "torch.stack(h)", "h.pop()", "h = [*h, x]", "h[0] = 0.0"]
)
def test_what_carries_something_on_does_not_begin_anew(tmp_path: Path, line: str) -> None:
    assert not begins_anew(tmp_path, f"h = []\nfor x in xs:\n    {line}", ("h",))


@pytest.mark.parametrize(("method", "expected"), [("on_epoch_end", True), ("__init__", False)])
def test_an_attribute_begins_anew_in_a_method_besides_the_constructor(
    tmp_path: Path, method: str, expected: bool
) -> None:
    source = f"""
        class Trainer:
            def {method}(self):
                self.history = []
            def step(self, x):
                self.history.append(x)
        trainer = Trainer()
        """
    assert begins_anew(tmp_path, source, ("trainer", ".history"), owner="Trainer") is expected


def test_an_entry_begins_anew_with_the_container_that_holds_it(tmp_path: Path) -> None:
    source = "for epoch in range(3):\n    meters = {'loss': 0.0}\n    meters['loss'] += x"
    assert begins_anew(tmp_path, source, ("meters", "['loss']"))
    assert not begins_anew(tmp_path, "for e in es:\n    meters.loss = 0.0", ("meters",))
