"""A dictionary of tensors that grow gets room for more: whoever reads it gets the same, or the change is refused."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "growing-concatenation"
REPLAY = """import torch

# what was seen
class Replay:
    def __init__(self):
        self.store = None

    # one more
    def add(self, **new):
        if self.store is None:
            self.store = {k: v.clone() for k, v in new.items()}
            return
        # at the end
        self.store = {k: torch.cat((old, new[k])) for k, old in self.store.items()}  # here

    def sample(self):
        return {k: v[1::2].sum().item() for k, v in self.store.items()}

"""
USE = """
replay = Replay()
for i in range(7):
    replay.add(seen=torch.full((3, 2), float(i)), moves=torch.tensor([i]))
    USE
print(replay.sample(), {k: (v.dtype, v.tolist()) for k, v in replay.store.items()})
"""
BACKWARD = "w = torch.ones(1, 2, requires_grad=True); w.register_hook(lambda g: print(g)); "


def same(text: str) -> str:
    after = changed(RULE, text)
    assert printed(after) == printed(text)
    return after


def refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        changed(RULE, text)


def test_rows_are_added_where_there_is_room():
    lines = same(REPLAY + USE.replace("USE", "print(replay.sample())")).splitlines()
    at = lines.index("        # at the end")
    assert lines[at - 2 : at + 2] == [
        '        if getattr(self, "_store_seen", None) is not self.store:',
        "            self._store_rows = {k: GrowingRows(old) for k, old in self.store.items()}",
        "        # at the end",
        "        self.store = self._store_seen = {k: self._store_rows[k].add(new[k]) for k in self.store}  # here",
    ]
    assert lines[1:5] == ["", "", "class GrowingRows:", lines[4]]
    at = lines.index("# what was seen")
    assert lines[at - 2 : at + 2] == ["", "", "# what was seen", "class Replay:"]


@pytest.mark.parametrize(
    "use",
    [
        "if i == 4: replay.store = {'seen': torch.zeros(1, 2), 'moves': torch.zeros(2)}",
        "if i == 4: replay.store = None",
        "if i == 4: replay.store = {'seen': replay.store['seen'].double(), 'moves': torch.zeros(0)}",
        "kept = replay.store; replay.add(seen=torch.ones(1, 2), moves=torch.ones(1)); print(kept)",
        "replay.add(seen=replay.store['seen'], moves=replay.store['moves'])",
        BACKWARD + "y = (replay.store['seen'] * w).sum(); replay.add(seen=w[:1].data, moves=w[0].data); y.backward()",
        BACKWARD + "replay.add(seen=w * 2, moves=w[:, 0].data); replay.store['seen'].sum().backward(retain_graph=True)",
        "with torch.inference_mode(): replay.add(seen=torch.ones(1, 2), moves=torch.ones(1))",
        "replay.add(seen=torch.ones(1, 2, dtype=torch.float64), moves=torch.ones(4))",
    ],
)
def test_whoever_reads_or_sets_the_dictionary_gets_the_same(use):
    same(REPLAY + USE.replace("USE", use))


def test_rows_of_other_shapes_fail_as_before():
    text = REPLAY + USE.replace("USE", "replay.add(seen=torch.ones(1, 1), moves=torch.ones(1))")
    for one in (text, changed(RULE, text)):
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            printed(one)


def test_line_ends_and_tabs_stay():
    text = (REPLAY + USE.replace("USE", "pass")).replace("    ", "\t").replace("\n", "\r\n")
    after = same(text)
    assert "\n" not in after.replace("\r\n", "")
    assert "\t\tself.store = self._store_seen" in after


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(old, new[k])", "(new[k], old)", "does not grow at its end"),
        ("(old, new[k])", "(old, old[:1])", "is computed from it"),
        ("(old, new[k])", "(old, new[k]), dim=1", "by their rows"),
        ("(old, new[k])", "(old, new[k], new[k])", "by their rows"),
        ("torch.cat(", "torch.maximum(*", "are not joined one by one"),
        ("{k: torch", "{k + 1: torch", "are not joined one by one"),
        ("self.store.items()}", "self.other.items()}", "is not made of"),
        ("self.store.items()}", "self.store.items() if k}", "no dictionary of tensors"),
        ("        self.store = {k: torch", "        store = {k: torch", "no attribute of `self`"),
        ("class Replay:", "class Replay(Base):", "has a base class"),
        ("    # one more", "    @logged", "no plain method"),
        ("import torch\n", "import torch, copy\nnew = copy.copy(old)\n", "a copy of the object"),
        ("import torch\n", "import torch\ntorch.save(x, 'x')\n", "what `save` writes would be longer"),
        ("import torch\n", "import torch, threading\n", "with `threading`"),
        ("import torch\n", "import torch\nr.store['seen'] = 0\n", "changes `store` in place"),
        ("import torch\n", "import torch\nr.store['seen'].zero_()\n", "changes `store` in place"),
        ("import torch\n", "import torch\nr.store.pop('seen')\n", "changes `store` in place"),
        ("import torch\n", "import torch\ndel r.store['seen']\n", "changes `store` in place"),
    ],
)
def test_what_somebody_might_tell_is_left_alone(old, new, reason):
    refused((REPLAY + USE.replace("USE", "pass")).replace(old, new, 1), reason)
