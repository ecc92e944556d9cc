"""Programs in which a change would alter what is computed: each is refused; beside it stands what may change."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed

SUM = "t = 0.0\nfor x in d:\n    t += x.item()  # here\n"
LIST = "import torch\na = []\nfor x in d:\n    a.append(x.item())  # here\n"
GROWN = "e = start()\nfor x in d:\n    e = torch.cat([e, x])  # here\n"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def refused(rule: str, text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        changed(rule, text)


@pytest.mark.parametrize(
    ("rule", "text", "name"), [("host-sync-in-step", SUM, "t"), ("growing-concatenation", GROWN, "e")]
)
def test_who_else_reads_the_variable_would_not_see_it_grow(rule, text, name):
    assert changed(rule, text + f"print({name})\n")
    assert changed(rule, f"def show({name}):\n    print({name})\n" + text)
    refused(
        rule, text.replace("for x", f"log = lambda: print({name})\nfor x"), f"shares `{name}` with another function"
    )
    refused(rule, text.replace("for x", f"def log():\n    print({name})\nfor x"), f"shares `{name}` with another")
    assert changed(rule, text + "model.eval()\n")
    for reader in (f"print(eval('{name} + 1'))", f"log(locals()['{name}'])"):
        refused(rule, f"{text}    {reader}\n", f"may find `{name}` by its name as a string")
    refused(rule, "def main():\n    global " + name + "\n" + indented(text), f"line 2 shares `{name}`")


@pytest.mark.parametrize(
    ("rule", "text", "name"), [("host-sync-in-step", SUM, "t"), ("growing-concatenation", GROWN, "e")]
)
def test_an_exception_may_end_the_loop(rule, text, name):
    first, loop = text.split("\n", 1)
    tried = f"{first}\ntry:\n{indented(loop)}"
    assert changed(rule, tried + f"    print({name})\nfinally:\n    close()\n")
    refused(rule, tried + f"except StopIteration:\n    pass\nprint({name})\n", f"reads `{name}` also if an exception")
    refused(rule, tried + f"finally:\n    print({name})\n", f"reads `{name}` also if an exception")
    refused(rule, f"{first}\nwith suppress(StopIteration):\n{indented(loop)}print({name})\n", "also if an exception")


@pytest.mark.parametrize(("rule", "text"), [("host-sync-in-step", LIST), ("growing-concatenation", GROWN)])
def test_a_tensor_that_later_rounds_change_is_not_collected(rule, text):
    for line in ("x += 1", "x.add_(1)", "x[0] = 1", "x.view(-1).zero_()", "init.zeros_(x)", "torch.add(b, b, out=x)"):
        refused(rule, f"{text}    {line}\n", "may be the same tensor in each round")
    refused(rule, text.replace("for x in d", "for _ in d"), "`x` may be the same tensor in each round")
    assert changed(rule, text + "    x.clone().add_(1)\n")


def test_what_a_number_goes_through_must_take_tensors():
    assert changed("host-sync-in-step", SUM.replace("x.item()", "-2 * (x.item() ** 2) / n"))
    for value in ("round(x.item(), 4)", "math.exp(x.item())", "(x.item() if n else 0)", "w[x.item()]"):
        refused("host-sync-in-step", SUM.replace("x.item()", value), "may not take a tensor")


def test_a_dimension_that_changes_is_not_taken_from_the_last_round():
    refused("growing-concatenation", GROWN.replace("x])", "x], dim=n)") + "    n = 1\n", "`n`, by which it is joined")
    assert changed("growing-concatenation", GROWN.replace("x])", "x], dim=n)"))


@pytest.mark.parametrize("around", ["if x > 1", "with torch.autocast('cuda')", "if x:\n        pass\n    else", "try"])
def test_what_is_not_computed_in_each_round_stays(around):
    end = "    finally:\n        pass\n" if around == "try" else ""
    text = f"for x in d:\n    {around}:\n        y = f(w)  # here\n        g(y)\n{end}"
    refused("redundant-recomputation", text, "the line does not stand in the loop alone")


def test_a_value_from_before_the_loop_stays():
    text = "y = None\nfor x in d:\n    y = f(w)  # here\ng(y)\n"
    refused("redundant-recomputation", text, "line 1 sets `y` before the loop")
    refused("redundant-recomputation", "def s():\n    global w\n    w = 2\n" + text[9:], "line 2 shares `w`")
    assert changed("redundant-recomputation", text[9:])


MET = "y = p.repeat(x.size(0), 1, 1)  # here\nz = x + y\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("", "", "z = x + p\n"),
        ("x + y", "y * x", "z = p * x\n"),
        ("x.size(0)", "x.shape[0]", "z = x + p\n"),
        ("y\n", "y\nx = 1\n", "z = x + p\nx = 1\n"),
    ],
)
def test_what_only_meets_the_rows_that_it_is_repeated_for_stays_as_it_is(old, new, after):
    assert changed("materialised-broadcast", MET.replace(old, new) if old else MET) == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + y", "w + y"),  # which may have other rows
        ("x + y", "x @ y"),
        ("x + y", "f(x, y)"),
        ("x + y", "x + y.sum()"),
        ("y\n", "y\nprint(y)\n"),
        ("z =", "x = x[:1]\nz ="),
        ("z =", "p = p + 1\nz ="),
        ("z = x + y", "if z:\n    z = x + y"),
        ("x.size(0)", "x.size(1)"),
    ],
)
def test_what_may_be_read_otherwise_is_expanded(old, new):
    after = changed("materialised-broadcast", MET.replace(old, new))
    assert after == MET.replace(old, new).replace("repeat", "expand").replace("1, 1)", "-1, -1)")


ROWS = "import torch\nd = torch.rand(9, 3)\nfor x in d:\n    y = table(w, x.device, x.dtype)  # here\n    g(x, y)\n"


def test_what_each_row_of_a_tensor_has_is_asked_of_the_tensor():
    after = changed("redundant-recomputation", ROWS)
    assert "y = table(w, d.device, d.dtype)  # here\nfor x in d:\n    g(x, y)\n" in after
    field = ROWS.replace("d = torch.rand(9, 3)", "class S:\n    d: torch.Tensor").replace("in d", "in s.d")
    assert "y = table(w, s.d.device, s.d.dtype)" in changed("redundant-recomputation", field)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.dtype", "x"),  # the row itself
        ("x.dtype", "x.shape"),
        ("d = torch.rand(9, 3)", "d = load()"),  # nothing shows that it is a tensor
        ("d = torch.rand(9, 3)", "d = torch.rand(9, 3)\nd = [d, d]"),
        ("d = torch.rand(9, 3)", "d = torch.rand(9, 3)\nd, e = load()"),
        ("for x in d", "for x in d.unbind(1)"),
    ],
)
def test_what_may_differ_from_row_to_row_is_asked_of_each(old, new):
    refused("redundant-recomputation", ROWS.replace(old, new), "`x`, which it reads, changes in the loop")


def test_a_tensor_that_becomes_another_in_the_loop_is_asked_each_time():
    text = ROWS.replace("    g(x, y)", "    d = torch.zeros(3)")
    refused("redundant-recomputation", text, "`d`, which it reads, changes in the loop")


@pytest.mark.parametrize(
    "line", ["y.view(-1).zero_()", "init.normal_(y)", "torch.add(a, a, out=y)", "relu(y, inplace=True)"]
)
def test_a_result_that_each_round_changes_in_place_is_made_anew(line):
    refused("redundant-recomputation", f"for x in d:\n    y = f(w)  # here\n    {line}\n", "`y` changes in the loop")
    refused("repeated-transfer", f"for x in d:\n    y = w.to(device)  # here\n    {line}\n", "`y` is changed in place")
    refused("materialised-broadcast", f"y = x.repeat(4, 1)  # here\n{line}\n", "`y` is changed in place")
    refused("oversized-storage", f"k.append(y[:1])  # here\n{line}\n", "`y` is changed in place")


def test_what_is_sent_must_be_the_same_each_time():
    refused("repeated-transfer", "for x in d:\n    y = w.to(device).add_(1)  # here\n", "changes the result in place")
    refused("repeated-transfer", "for x in d:\n    y = torch.rand(4).to(device)  # here\n", "`rand` may give something")
    refused("repeated-transfer", "for x in d:\n    y = next(w).to(device)  # here\n", "`next` may give something else")
    assert changed("repeated-transfer", "for x in d:\n    y = torch.tensor([1, 2]).to(device)  # here\n")


def test_an_item_of_what_was_repeated_is_not_written_into_all():
    refused("materialised-broadcast", "y = x.repeat(4, 1)  # here\ny[0] = 1\n", "`y` is changed in place")
    assert changed("materialised-broadcast", "y = x.repeat(4, 1)  # here\ny = y + 1\n")


ATTENTION = """import torch
import torch.nn.functional as F
scores = q @ k.transpose(-2, -1)  # here
scores = {}
weights = F.softmax(scores, dim=-1)
out = weights @ v
"""


def test_a_mask_of_the_scores_themselves_is_no_mask_of_the_fused_call():
    rule = "unfused-attention"
    assert changed(rule, ATTENTION.format("scores.masked_fill(mask < 1, float('-inf'))"))
    refused(rule, ATTENTION.format("scores.masked_fill(scores < 1, float('-inf'))"), "is computed from `scores`")
    refused(rule, ATTENTION.format("scores + bias(scores)"), "is computed from `scores`")
    refused(rule, ATTENTION.format("scores / scores.std()"), "is computed from `scores`")
    refused(rule, ATTENTION.format("scores + mask").replace("@ v", "@ weights"), "is computed from `weights`")


def test_what_a_line_makes_is_not_made_twice():
    text = "import torch\nl = DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=2, shuffle=True)  # here\n"
    refused("per-sample-fetch", text, "the data is made on that line")
    assert changed("per-sample-fetch", text.replace("torch.randn(8, 2)", "x"))
    batch = (
        "import torch\nm = DDP(n)\nfor x in d:\n    y = m(x)  # here\n    y.backward()\n    if {}:\n        o.step()\n"
    )
    refused("redundant-allreduce", batch.format("counter.next()"), "not known before the forward pass")
    assert changed("redundant-allreduce", batch.format("i % 2 and i < len(d)"))


def test_a_whole_model_sees_all_positions():
    text = "logits = {}(tokens)  # here\np = logits[:, -1]\n"
    refused("discarded-logits", text.format("model"), "nothing in this file shows that `model` is one linear layer")
    assert changed("discarded-logits", text.format("self.lm_head"))
    assert changed("discarded-logits", "self.out = nn.Linear(8, 9)\n" + text.format("self.out"), 2)


def test_a_cast_whose_result_is_read_stays():
    trip = "2 tensors are cast from float16 to float32 and straight back"
    text = "y = x.float()  # here\nz = y.half()\n"
    assert changed("dtype-round-trip", text, message=trip) == "y = x  # here\nz = y.half()\n"
    with pytest.raises(Refused, match="line 3 reads `y` in the wider type"):
        changed("dtype-round-trip", text + "print(y.sum())\n", message=trip)


def test_two_tensors_of_one_line_are_cast_if_neither_can_hold_whole_numbers():
    def text(b: str, a: str = "r.normal(size=8)") -> str:
        return f"a = {a}\nb = {b}\nx, y = torch.from_numpy(a), torch.from_numpy(b)  # here\n"

    for b in ("np.sin(a)", "a[:, 0] + 1", "c / 2", "0.5 * c", "r.standard_normal(3)"):
        after = changed("float64-compute", text(b))
        assert "torch.from_numpy(a).float(), torch.from_numpy(b).float()" in after
    for b in ("r.integers(8)", "c", "b + 1", "a.astype(int)", "c // 2", "np.argmax(a)"):
        refused("float64-compute", text(b), "several tensors are made")


def test_an_array_that_the_tensor_shares_stays_shared():
    refused("float64-compute", "x = torch.from_numpy(a)  # here\na[:] = 1\n", "`a` is changed in place")
    refused("float64-compute", "x, y = torch.tensor(a), torch.tensor(b)  # here\n", "several tensors are made")
    assert changed("float64-compute", "x = torch.from_numpy(a)  # here\na = 1\n")


def test_a_leaf_of_the_graph_stays_on_its_device():
    refused("host-created-tensor", "x = torch.ones(8, requires_grad=True).to(device)  # here\n", "`requires_grad=`")


def test_a_layer_that_is_declared_with_its_type():
    text = "class State:\n    tokens: list[int]\n    out: nn.Linear\ndef f(state, h):\n"
    text += "    logits = state.{}(h)  # here\n    return logits[:, -1]\n"
    assert "state.out(h[:, -1])" in changed("discarded-logits", text.format("out"))
    refused("discarded-logits", text.format("tokens"), "shows that `tokens` is one linear layer")
