"""An attribute that grows by joining becomes a property: whoever reads it gets the same, or the change is refused."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "growing-concatenation"
BANK = """import torch

class Bank:
    # of all batches
    def __init__(self):
        self.rows = torch.empty(0, 2)
        self.seen = 0

    # one more
    def add(self, new):
        self.seen += 1
        self.rows = torch.cat([self.rows, new], dim=0)  # here

    def mean(self):
        return self.rows.mean(0)

"""
USE = """
bank = Bank()
for i in range(4):
    bank.add(torch.full((i, 2), float(i)))
    {}
print(bank.rows.tolist(), bank.mean(), len(bank.rows), bank.rows is bank.rows)
"""


def same(text: str) -> str:
    after = changed(RULE, text)
    assert printed(after) == printed(text)
    return after


def test_the_parts_are_joined_when_they_are_read():
    after = same(BANK + USE.format("pass"))
    assert "        self._rows_parts.append(new.clone())  # here\n" in after
    assert "            with torch.enable_grad():\n" in after
    assert "    # one more\n    def add(self, new):\n" in after
    assert "        self.rows = torch.empty(0, 2)\n" in after


@pytest.mark.parametrize(
    "use",
    [
        "print(bank.rows)",
        "if i == 2: print(bank.mean())",
        "if i == 2: bank.rows = torch.zeros(1, 2)",
        "kept = bank.rows; bank.add(torch.ones(3, 2)); print(kept, bank.rows)",
        "print(hasattr(bank, 'rows'), hasattr(bank, 'other'))",
        "bank.add(bank.rows)",
        "bank.add(torch.ones(1, 2, dtype=torch.float64)); print(bank.rows.dtype)",
        "w = torch.ones(1, 2, requires_grad=True); bank.rows = torch.ones(1, 2); bank.add(w * 2); print(bank.rows)",
    ],
)
def test_readers_in_between_get_what_was_added_so_far(use):
    same(BANK + USE.format(use))
    same((BANK + USE.format(use)).replace("\n", "\r\n").replace("    ", "\t"))


def test_a_reader_without_gradients_leaves_those_of_the_parts():
    use = """
bank, w = Bank(), torch.ones(1, 2, requires_grad=True)
bank.add(w * 3)
with torch.no_grad():
    print(bank.mean().requires_grad)
bank.rows.sum().backward()
print(w.grad, bank.rows.requires_grad)
with torch.inference_mode():
    bank.add(torch.ones(1, 2))
    print(bank.rows)
"""
    same(BANK + use)


def test_what_is_added_may_be_changed_afterwards():
    use = """
bank, state = Bank(), torch.zeros(1, 2)
for i in range(3):
    state += 1
    bank.add(state)
print(bank.rows)
"""
    same(BANK + use)


@pytest.mark.parametrize(
    "line", ["torch.cat((self.rows, new))", "torch.vstack([self.rows, new])", "torch.concat([self.rows, f(new)], -2)"]
)
def test_other_ways_to_join(line):
    text = (BANK + USE.format("pass")).replace("torch.cat([self.rows, new], dim=0)", line)
    same("f = lambda x: x\n" + text)


def test_the_first_part_may_be_none():
    text = (
        (BANK + USE.format("pass"))
        .replace("torch.empty(0, 2)", "None")
        .replace(
            "        self.seen += 1\n",
            "        if self.rows is None:\n            self.rows = new.clone()\n            return\n",
        )
    )
    assert "if self._rows_parts[0] is None:" in same(text)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("class Bank:", "class Bank(nn.Module):", "has a base class"),
        ("class Bank:", "@dataclass\nclass Bank:", "a base class or a decorator"),
        ("    def add", "    @torch.no_grad()\n    def add", "no plain method"),
        ("    # of all", "    __slots__ = ('rows', 'seen')\n    # of all", "may see how"),
        ("    # of all", "    rows = None\n    # of all", "an attribute of the class too"),
        ("    # of all", "    rows: torch.Tensor\n    # of all", "an attribute of the class too"),
        ("print(bank", "print(bank.__dict__, bank", "may see how"),
        ("print(bank", "print(vars(bank), bank", "may see how"),
        ("print(bank", "print(getattr(bank, 'rows'), bank", "its name as a string"),
        ("import torch", "import torch, pickle", "may see how"),
        ("import torch", "import torch, threading", "at any time"),
        ("print(bank", "other = copy.copy(bank)\nprint(bank", "would share the list"),
        ("print(bank", "bank.rows.zero_()\nprint(bank", "changes `rows` in place"),
        ("print(bank", "bank.rows += 1\nprint(bank", "changes `rows` in place"),
        ("print(bank", "bank.rows[0] = 1\nprint(bank", "changes `rows` in place"),
        ("print(bank", "torch.add(a, b, out=bank.rows)\nprint(bank", "changes `rows` in place"),
        ("print(bank", "del bank.rows\nprint(bank", "changes `rows` in place"),
        ("print(bank", "bank.rows = state\nprint(bank", "somebody else may change later"),
        ("torch.empty(0, 2)", "start", "somebody else may change later"),
        ("self.seen += 1", "self.seen = len(self.rows)", "reads `rows` each time"),
        ("self.seen += 1", "print((n := self.rows).shape)", "reads `rows` each time"),
        ("[self.rows, new]", "[new, self.rows]", "does not grow at its end"),
        ("[self.rows, new]", "[self.rows, new - self.rows.mean()]", "is computed from it"),
        ("dim=0", "dim=self.dim", "may be another one"),
        ("dim=0", "out=self.other", "may be another one"),
        ("import torch\n", "from torch import *\n", "does not import torch"),
        ("self.rows = torch.cat", "self.rows = self.last = torch.cat", "does not assign"),
        ("self.rows = torch.cat", "self.a.rows = torch.cat", "does not"),
    ],
)
def test_who_might_tell_the_two_apart(old, new, reason):
    text = BANK + USE.format("pass")
    assert old in text
    with pytest.raises(Refused, match=reason):
        changed(RULE, text.replace(old, new, 1))
