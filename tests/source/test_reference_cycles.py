"""Where objects come to refer to each other: the statement that closes the cycle, and none if there is no cycle."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profkit.source.remarks import review_sources

REPORT = """
class Report:
    def __init__(self, value, module):
        {}

    def compute(self):
        return 1

    def writer(self, i):
        def write(module, args, output):
            self.features[i] = output
        return write

    def watcher(this):
        return {{"watch": lambda x: this.compute()}}

    def maker(self, i):
        def make(x):
            return x + i
        return make

class Child:
    def __init__(self, parent, index=0):
        parts = [parent]
        self.parts, self.index = parts, index

@dataclass
class Row:
    report: Report
    index: int

class Probe:
    def __init__(self, report, parent=None):
        self.size = len(report.rows)
        self.parent = weakref.ref(parent)

class Inherited(Child):
    pass
"""


def closing_lines(tmp_path: Path, source: str) -> list[tuple[str, int]]:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    remarks = [remark for remark in review_sources([str(file)]) if remark.kind == "cycle-closed"]
    return [(remark.site.function, remark.site.line) for remark in remarks]


@pytest.mark.parametrize(
    "statement",
    [
        "self.me = self",
        "self.parts['all'] = [self, value]",
        "self.metric = self.compute",
        "self.metrics = {'loss': lambda: self.loss.item()}",
        "self.child = Child(self)",
        "self.writers = [self.writer(i) for i in range(3)]",
        "self.hooks.append(self.watcher())",
        "self.children.append(Child(index=1, parent=self))",
        "self.run = functools.partial(self.compute, 1)",
        "module.register_forward_hook(self.compute); self.module = module",
        "value.owner, self.value = self, value",
        "self.rows = [Row(self, i) for i in range(3)]",
    ],
)
def test_a_statement_that_makes_an_object_hold_itself_is_remarked(tmp_path, statement):
    assert closing_lines(tmp_path, REPORT.format(statement)) == [("Report.__init__", 4)]


@pytest.mark.parametrize(
    "statement",
    [
        "self.value = value",
        "self.loss = self.compute()",
        "self.makers = [self.maker(i) for i in range(3)]",
        "self.first = self.second",
        "self.probe = Probe(self)",
        "self.probe = Probe(value, self)",
        "self.child = Child(value, self.index)",
        "self.child = Inherited(self)",
        "self.thread = Thread(target=self.compute)",
        "self.parent = weakref.ref(self)",
        "self.handler = weakref.WeakMethod(self.compute)",
        "self.table = [lambda self: self.loss]",
        "self.sorted = sorted(value, key=lambda row: row.size)",
        "self.norm = normalise(self, value)",
        "value.append(self)",
    ],
)
def test_a_statement_that_closes_no_cycle_is_not_remarked(tmp_path, statement):
    assert closing_lines(tmp_path, REPORT.format(statement)) == []


def test_the_second_of_two_references_closes_the_cycle(tmp_path):
    source = """
    class Node:
        def __init__(self, value, parent):
            self.value, self.parent = value, parent
            if parent is not None:
                parent.children.append(self)

    def grow(value):
        root = Node(value, None)
        leaf = Node(value * 2, root)
        root.leaf = leaf
        return leaf
    """
    assert sorted(closing_lines(tmp_path, source)) == [("Node.__init__", 6), ("grow", 11)]


def test_an_inner_function_that_calls_itself_holds_itself(tmp_path):
    source = """
    def search(scores):
        def visit(i):
            return scores[i] if i > 3 else visit(i + 1)

        def leaf(i):
            return scores[i]

        return visit(0) + leaf(1)
    """
    assert closing_lines(tmp_path, source) == [("search", 3)]


def test_a_kept_exception_holds_its_frames(tmp_path):
    source = """
    class Runner:
        def run(self, batch):
            try:
                return self.model(batch)
            except ValueError as error:
                self.last = error
    """
    assert closing_lines(tmp_path, source) == [("Runner.run", 7)]


def test_module_level_names_are_no_garbage(tmp_path):
    assert closing_lines(tmp_path, "a = []\na.append(a)\n") == []


def test_a_class_of_another_file_is_known(tmp_path):
    nodes, tree = tmp_path / "nodes.py", tmp_path / "tree.py"
    nodes.write_text("class Node:\n    def __init__(self, parent):\n        self.parent = parent\n")
    tree.write_text("class Tree:\n    def __init__(self):\n        self.root = Node(self)\n")
    both, alone = (review_sources(map(str, files)) for files in ([nodes, tree], [tree]))
    assert [(remark.kind, remark.site.line) for remark in both] == [("cycle-closed", 3)]
    assert alone == ()
