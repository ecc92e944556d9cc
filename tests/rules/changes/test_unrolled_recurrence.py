"""A loop over a cell becomes a call of its layer: the exact text, that it computes the same, and when there is none."""

from __future__ import annotations

import pytest
import torch

from profkit.rules.changes import AltersNumbers, Refused
from tests.rules.changes.test_restructured import changed, expect

RULE = "unrolled-recurrence"
MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.{cell}(3, 5)

    def forward(self, xs, h, c):
        h, c = h + 0, c + 0
        found = []
{loop}
        return {result}
"""
INDEXED = """
        for t in range(xs.size(1)):
            h = self.cell(xs[:, t], h)  # here
            found.append(h)
"""
BY_TIME = """
        for t in range({rounds}):
            {line}  # here
            found.append(h)
"""
BY_ITEM = """
        for {items}:
            h, c = self.cell(x, (h, c))  # here
            found.append({kept})
"""
INPUT_BEFORE = """
        for t in range(xs.size(1)):
            x = xs[:, t]
            h = self.cell(x, h)  # here
            found.append(h + x.sum())
"""
BY_ONE = """
        for x in xs:
            h = self.cell(x, h)  # here
            found.append(h)
"""
ALONE = """
        for x in xs.unbind(1):
            h, c = self.cell(x, (h, c))  # here
"""
CARRIED_OVER = """
        for _ in range(2):
            for x in xs.unbind(1):
                h, c = self.cell(x, (h, c))  # here
                found.append(h)
"""
COUNTED = BY_ITEM.format(items="t, x in enumerate(xs.unbind(1))", kept="h * t")
ALL = "torch.stack(found)"
LOOPS = {
    "indexed": ("GRUCell", INDEXED, f"{ALL}, h"),
    "last only": ("RNNCell", INDEXED.replace("            found.append(h)\n", ""), "h"),
    "some rounds": ("GRUCell", INDEXED.replace("xs.size(1)", "4"), f"{ALL}, h"),
    "time first": ("GRUCell", BY_TIME.format(rounds="len(xs)", line="h = self.cell(xs[t], h)"), ALL),
    "input before": ("GRUCell", INPUT_BEFORE, ALL),
    "items": ("LSTMCell", BY_ITEM.format(items="x in xs.unbind(1)", kept="2 * h"), f"{ALL}, h, c"),
    "items used": ("LSTMCell", BY_ITEM.format(items="x in xs", kept="h + x.mean()"), f"{ALL}, c"),
    "counted items": ("LSTMCell", COUNTED, ALL),
    "carried over": ("LSTMCell", CARRIED_OVER, ALL),
    "both last": ("LSTMCell", ALONE, "h, c"),
}


def run(source: str) -> list[torch.Tensor]:
    """What the model computes of a sequence, with the gradients of its weights."""
    torch.manual_seed(1)
    names: dict[str, object] = {}
    exec(source, names)
    model = names["Model"]()  # type: ignore[operator]  # the class of the source
    found = model(torch.rand(6, 6, 3), torch.rand(6, 5), torch.rand(6, 5))
    found = [found] if isinstance(found, torch.Tensor) else list(found)
    sum(one.square().sum() for one in found).backward()
    return [*found, *(one.grad for one in model.parameters())]


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_the_layer_computes_what_the_loop_did(name):
    cell, loop, result = LOOPS[name]
    before = MODEL.format(cell=cell, loop=loop.strip("\n"), result=result)
    after = changed(RULE, before)
    assert "self.cell(x" not in after.replace("self.cell(xs", "")
    assert f"nn.{cell.removesuffix('Cell')}(" in after
    for old, new in zip(run(before), run(after), strict=True):
        torch.testing.assert_close(new, old)


ROWS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)
        self.head = {head}

    def forward(self, xs, h, c):
        h, c = h + 0, c + 0
        found = []
        for x in xs.unbind(1):
            h, c = self.cell(x, (h, c))  # here
            found.append(self.head(h))
        return {result}
"""
LINEAR = "nn.Linear(5, 2)"


@pytest.mark.parametrize("result", ["torch.stack(found, dim=1), c", "torch.stack(found, 1).mean(1)"])
def test_a_layer_of_each_state_alone_takes_all_states(result):
    before = ROWS.format(head=LINEAR, result=result)
    after = changed(RULE, before)
    assert "self.head(states)" in after
    assert "for " not in after
    assert "found" not in after
    for one, other in zip(run(before), run(after), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("result", "is_gone"),
    [
        ("torch.stack(found, dim=1), c", True),
        ("torch.stack(found, dim=1), h", False),  # the last state is read too
        ("torch.stack(found), c", False),  # time comes first
        ("torch.stack([*found], dim=1), c", False),
    ],
)
def test_a_list_of_the_states_alone_is_what_the_layer_gives(result, is_gone):
    before = ROWS.format(head=LINEAR, result=result).replace("self.head(h)", "h")
    after = changed(RULE, before)
    assert ("for " not in after and "found" not in after) is is_gone
    for one, other in zip(run(before)[:2], run(after)[:2], strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_cell_and_a_layer_may_be_made_side_by_side_and_placed_there():
    before = ROWS.format(head=LINEAR, result="torch.stack(found, dim=1), c").replace(
        "self.cell = nn.LSTMCell(3, 5)\n        self.head = nn.Linear(5, 2)",
        "self.cell, self.head = nn.LSTMCell(3, 5).to('cpu'), nn.Linear(5, 2).to('cpu')",
    )
    after = changed(RULE, before)
    assert "self.cell, self.head = nn.LSTM(3, 5, batch_first=True).to('cpu'), nn.Linear(5, 2).to('cpu')" in after
    assert "self.head(states)" in after
    for one, other in zip(run(before), run(after), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("head", "result"),
    [
        ("nn.BatchNorm1d(5)", "torch.stack(found, dim=1)"),  # it looks at all rows
        ("nn.Sequential(nn.Linear(5, 2))", "torch.stack(found, dim=1)"),
        (LINEAR, "torch.stack(found)"),  # time comes first
        (LINEAR, "torch.stack(found, dim=1), h"),
        (LINEAR, "torch.stack(found, dim=1), found[0]"),
        (LINEAR, "torch.cat(found, dim=1)"),
        (LINEAR, "found"),
    ],
)
def test_what_is_read_otherwise_is_made_in_the_loop(head, result):
    before = ROWS.format(head=head, result=result)
    after = changed(RULE, before)
    assert "found.append(self.head(h))" in after
    if "BatchNorm" not in head and result != "found":
        for one, other in zip(run(before), run(after), strict=True):
            assert torch.allclose(one, other, atol=1e-6)


def test_the_rest_of_the_loop_stays():
    before = MODEL.format(cell="LSTMCell", loop=COUNTED.strip("\n"), result="found")
    after = changed(RULE, before)
    assert expect("""
        found = []
        states, _ = self.cell(xs, (h[None], c[None]))
        for t, x in enumerate(xs.unbind(1)):
            h = states[:, t]  # here
            found.append(h * t)
        return found
    """).strip() in "\n".join(line.removeprefix("        ") for line in after.splitlines())


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        (INDEXED + "            h = h * 0.5\n", "changes in the loop besides"),
        (INDEXED + "            h.mul_(0.5)\n", "changes in the loop besides"),
        (INDEXED + "            if h.sum() > 3: break\n", "may end before the sequence does"),
        (INDEXED + "            xs[:, t] = 0\n", "`xs`, of which the inputs are read, changes"),
        (INDEXED.replace("xs[:, t]", "xs[:, t] * 2"), "computed in the loop"),
        (INDEXED.replace("xs[:, t]", "xs[:, t + 1]"), "not a row of a sequence"),
        (INDEXED.replace("xs[:, t], h)", "xs[:, t], c)"), "not the one that it takes"),
        (INDEXED + "        self.cell.weight_hh.mean()\n", "used elsewhere"),
        (INDEXED.replace("self.cell(", "self.other("), "is set at no places in that class"),
        ("        h = self.cell(xs[:, 0], h)  # here\n", "no `for` loop"),
        ("        if c is None:\n            h = None\n" + INDEXED, "that `None` is a tensor"),
        (INPUT_BEFORE.replace("h = self", "x = x * 2\n            h = self"), "line 14 changes `x`"),
        (INPUT_BEFORE.replace("h = self", "if t > 2: x = x * 2\n            h = self"), "line 14 changes `x`"),
        (INPUT_BEFORE.replace("h = self", "x.clamp_(0)\n            h = self"), "`x` is changed in place"),
        (
            INPUT_BEFORE.replace("h = self", "for y in x: c = c + y.sum()\n            x += 1\n            h = self"),
            "x`",
        ),
        (BY_ONE.replace("h = self", "if t: x = x * 2\n            h = self"), "line 13 changes `x`"),
        (BY_ONE.replace("h = self", "p = h\n            h = self"), "reads the `h` of the round before"),
        (INDEXED.replace("h = self", "t = 5 - t\n            h = self"), "line 13 changes `t`"),
        (INDEXED + "            h.register_hook(lambda g: g / 2)\n", "hears of each round"),
        (INDEXED + "            h.sum().backward(retain_graph=True)\n", "trains in its rounds"),
        (INDEXED + "            torch.set_grad_enabled(t > 2)\n", "turns gradients on and off"),
        ("        def zero():\n            nonlocal h\n            h = h * 0\n" + INDEXED, "with another function"),
        ("        ys = [x * 2 for x in xs]\n" + BY_ONE.replace("in xs", "in ys"), "`ys` is no tensor but a list"),
        ("        ys = xs.unbind(1)\n" + BY_ONE.replace("in xs", "in ys"), "`ys` is no tensor but a list"),
        (INDEXED.replace("xs.size(1)", "n := xs.size(1)"), "computed in the loop's head"),
        (INDEXED.replace("xs.size(1)", "self.draw()"), "computed in the loop's head"),
        (INDEXED.replace("            found.append(h)", "        h = h + t"), "reads `t` outside of the loop"),
        (BY_ONE.replace("            found.append(h)", "        h = h + x.sum()"), "reads `x` outside of the loop"),
        ("        init = None\n        h = init\n" + INDEXED, "that `init` is a tensor"),
        ("        isinstance(self, nn.GRUCell)\n" + INDEXED, "looks for a `GRUCell`"),
    ],
)
def test_a_loop_that_does_more_is_refused(loop, reason):
    with pytest.raises(Refused, match=reason):
        changed(RULE, MODEL.format(cell="GRUCell", loop=loop.strip("\n"), result="h"))


def test_a_cell_of_the_program_is_refused():
    with pytest.raises(Refused, match="none of PyTorch's cells"):
        changed(RULE, MODEL.format(cell="Linear", loop=INDEXED.strip("\n"), result="h"))


@pytest.mark.parametrize("placed", ["to(device)", "double().cuda()", "eval()"])
def test_a_cell_may_be_placed_where_it_is_made(placed):
    text = MODEL.format(cell="GRUCell", loop=INDEXED.strip("\n"), result="h")
    made = "nn.GRU(3, 5, batch_first=True)"
    assert f"self.cell = {made}.{placed}\n" in changed(RULE, text.replace("(3, 5)", f"(3, 5).{placed}"))
    with pytest.raises(Refused, match="none of PyTorch's cells"):
        changed(RULE, text.replace("(3, 5)", "(3, 5).forward"))


def test_two_states_under_one_name_are_refused():
    loop = "        s = h, c\n" + INDEXED.replace("h)", "s)").replace("h = self", "s = self")
    with pytest.raises(Refused, match="go by one name"):
        changed(RULE, MODEL.format(cell="LSTMCell", loop=loop.strip("\n"), result="s[0]"))


@pytest.mark.parametrize("kind", ["List[torch.Tensor]", "DataLoader", "list"])
def test_inputs_that_are_told_to_be_a_list_are_refused(kind):
    text = MODEL.format(cell="GRUCell", loop=BY_ONE.strip("\n"), result="h").replace("xs, h, c)", f"xs: {kind}, h, c)")
    with pytest.raises(Refused, match="`xs` is no tensor but a list"):
        changed(RULE, text)


def test_a_cell_of_that_name_from_elsewhere_is_refused():
    text = MODEL.format(cell="GRUCell", loop=INDEXED.strip("\n"), result="h").replace("nn.GRUCell", "cells.GRUCell")
    with pytest.raises(Refused, match=r"nothing shows that `cells\.GRUCell` is PyTorch's"):
        changed(RULE, "import cells\n" + text)


def test_a_variable_named_like_what_is_left_out_stays():
    loop = "        _ = 2\n" + INDEXED.replace("append(h)", "append(_ * h)")
    assert "states, rest = self.cell(" in changed(RULE, MODEL.format(cell="GRUCell", loop=loop.strip("\n"), result="h"))


def test_where_weights_are_saved_it_is_offered_apart():
    text = (
        MODEL.format(cell="GRUCell", loop=INDEXED.strip("\n"), result="h") + "\ntorch.save(Model().state_dict(), 'm')\n"
    )
    with pytest.raises(AltersNumbers, match="get other names"):
        changed(RULE, text)


FILLED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)

    def forward(self, xs, h, c):
        h, c = h + 0, c + 0
        rows, length, _ = xs.shape
        out = torch.zeros({sizes})
        for t in range(length):
            h, c = self.cell(xs[:, t, :], (h, c))  # here
            out[{place}] = h
        return {result}
"""


@pytest.mark.parametrize(
    ("sizes", "place", "result", "is_gone"),
    [
        ("rows, length, 5", ":, t", "out, c", True),
        ("rows, length, 5, device=xs.device", ":, t, :", "out.sum(1)", True),
        ("rows, length + 2, 5", ":, t", "out", False),  # rows of zeros stay behind it
        ("rows, length, 5", ":, t", "out, h", False),
        ("rows, length, 5, dtype=torch.float64", ":, t", "out", False),
        ("rows, 1, length, 5", ":, 0, t", "out", False),
    ],
)
def test_a_tensor_that_only_takes_the_states_is_what_the_layer_gives(sizes, place, result, is_gone):
    before = FILLED.format(sizes=sizes, place=place, result=result)
    after = changed(RULE, before)
    assert ("for " not in after and "zeros" not in after) is is_gone
    assert ("self.cell(xs, " in after) is True  # all of it: the length is that of the sequence
    for one, other in zip(run(before)[:1], run(after)[:1], strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_length_that_is_set_again_is_not_that_of_the_sequence():
    before = FILLED.format(sizes="rows, length, 5", place=":, t", result="out")
    after = changed(RULE, before.replace("        out = ", "        length = length - 1\n        out = "))
    assert "self.cell(xs[:, :length], " in after
