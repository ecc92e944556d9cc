"""Counting at places, and the same arithmetic for each column, without a loop: the same numbers, or a reason."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "tensor-element-loop"
COUNTS = """import torch

m = torch.zeros(3, 3)
a, b = torch.tensor([0, 1, 1, 2, 1]), torch.tensor([[2, 1, 1, 0, 1]])
for i in range(2):
    # by class
    for t, p in zip(a.view(-1), b.view(-1)):  # all
        m[t.long(), p.long()] += 1  # here
print(m.tolist())
"""
COLUMNS = """import torch

def returns(rewards, ends, last, gamma=0.5):
    out = torch.zeros_like(rewards)
    # each on its own
    for n in range(rewards.shape[1]):
        future = last[n]
        for t in reversed(range(len(rewards))):
            # backwards
            future = rewards[t, n] + gamma * future * (1 - ends[t, n])  # here
            out[t, n] = future
    return out

r = torch.arange(12.0).view(4, 3)
print(returns(r, (r % 3 == 0).float(), torch.ones(3)).tolist())
"""


def same(text: str) -> str:
    after = changed(RULE, text)
    assert printed(after) == printed(text)
    return after


def refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        changed(RULE, text)


def test_counts_are_added_at_once():
    assert same(COUNTS).splitlines()[4:7] == [
        "for i in range(2):",
        "    # by class",
        "    m.index_put_((a.view(-1).long(), b.view(-1).long()), m.new_tensor(1), accumulate=True)  # here",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m[t.long(), p.long()]", "m[int(t), p.item()]"),
        ("a.view(-1), b.view(-1)", "a.flatten(), b.reshape(-1), strict=True"),
        ("+= 1 ", "+= 0.25 "),
        ("torch.zeros(3, 3)", "torch.zeros((3, 3), dtype=torch.int64)"),
        ("torch.zeros(3, 3)", "torch.zeros(3, 3).long()"),
        ("    for t, p in zip(a.view(-1), b.view(-1)):  # all\n        m[t.long(), p.long()]",
         "    for t in a.view(-1):\n        m[t]"),
        ("\n", "\r\n"),
        ("    ", "\t"),
    ],
)  # fmt: skip
def test_counts_in_other_words(old, new):
    same(COUNTS.replace(old, new))


def test_indices_from_a_device_go_to_where_the_counts_are():
    after = changed(RULE, COUNTS.replace("torch.zeros(3, 3)", "torch.zeros(3, 3, device=device)"))
    assert "a.view(-1).long().to(m.device)" in after


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("b.view(-1)", "b", "nothing shows that `b` has one dimension"),
        ("torch.zeros(3, 3)", "np.zeros((3, 3))", "nothing shows that `m` is a tensor"),
        ("+= 1 ", "-= 1 ", "is no number that stands there"),
        ("+= 1 ", "+= w ", "is no number that stands there"),
        ("m[t.long(), p.long()]", "m[t.long(), t.long()]", "other than the loop's variables"),
        ("m[t.long(), p.long()]", "m[t.long(), 0]", "other than the loop's variables"),
        ("m[t.long(), p.long()]", "m[t.long():, p.long()]", "other than the loop's variables"),
        ("# here\n", "# here\n        n = t\n", "does more than count"),
        ("# here\n", "# here\n    else:\n        pass\n", "does more than count"),
        ("print(m", "print(t, m", "reads `t` outside of the loop"),
        ("zip(a.view(-1)", "zip(*a.view(-1)", "neither a tensor nor several by `zip`"),
        ("zip(a", "pairs(a", "neither a tensor nor several by `zip`"),
        ("b.view(-1)", "(q := b.view(-1))", "not a plain expression"),
        ("\n\nm = ", "\n\nm = 0\nm = ", "`m` is set at 2 places"),
    ],
)
def test_other_counting_is_left_alone(old, new, reason):
    refused(COUNTS.replace(old, new), reason)


def test_all_columns_are_worked_on_at_once():
    assert same(COLUMNS).splitlines()[2:10] == [
        "def returns(rewards, ends, last, gamma=0.5):",
        "    out = torch.zeros_like(rewards)",
        "    # each on its own",
        "    future = last",
        "    for t in reversed(range(len(rewards))):",
        "        # backwards",
        "        future = rewards[t] + gamma * future * (1 - ends[t])  # here",
        "        out[t] = future",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for n in range(rewards.shape[1])", "for n in range(rewards.size(1))"),
        ("    for n in range(rewards.shape[1])", "    steps, count = rewards.shape\n    for n in range(count)"),
        ("for n in range(rewards.shape[1])", "for n in range(len(last))"),
        ("rewards[t, n]", "rewards[t][n]"),
        ("future = last[n]", "future = 0.0"),
        ("    ", "\t"),
    ],
)
def test_columns_in_other_words(old, new):
    same(COLUMNS.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("range(rewards.shape[1])", "range(3)", "shows that the loop goes over all columns"),
        ("range(rewards.shape[1])", "range(rewards.shape[0])", "shows that the loop goes over all columns"),
        ("range(rewards.shape[1])", "range(1, rewards.shape[1])", "do not work on one column each"),
        ("        future = last[n]\n", "", "`future` is carried over"),
        ("last[n]", "last[n - 1]", "do not work on one column each"),
        ("ends[t, n]", "ends[t, n] * rewards[t, 0]", "looks at other columns of `rewards`"),
        ("ends[t, n]", "ends[t, n] * out[t].sum()", "sum"),
        ("out[t, n] = future", "out[t] = future", "writes to the same place|looks at other columns"),
        ("(1 - ends[t, n])", "(1 if ends[t, n] else 0)", "does more than arithmetic"),
        ("(1 - ends[t, n])", "max(1, ends[t, n])", "calls `max` in each round"),
        ("(1 - ends[t, n])", "(ends[t, n] @ w)", "does more than arithmetic"),
        ("            out[t, n] = future", "            if t: out[t, n] = future", "decides something"),
        ("            out[t, n] = future", "            out[t, n] = future; yield future", "does more than arithmetic"),
        ("            out[t, n] = future", "            out[t, n] = future\n        # end", "a comment ends the loop"),
        ("    return out", "    return out, future", "reads `future` outside of the loop"),
        ("            out[t, n] = future", "            out[n, t] = future", "do not work on one column each"),
    ],
)  # fmt: skip
def test_columns_that_depend_on_each_other_keep_their_loop(old, new, reason):
    refused(COLUMNS.replace(old, new), reason)


def test_a_loop_on_one_line_is_left_alone():
    refused("import torch\nfor n in range(len(x)): y[n] = x[n] * 2  # here\n", "not one plain statement|one line")


SUMMED = """import torch
torch.manual_seed(0)
a, b, total = torch.rand(50), torch.rand(50), torch.zeros(())
for i in range(len(a)):
    total = total + a[i] * b[i]  # here
print(round(float(total), 3))
"""


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("", "", "total = total + (a * b).sum(0)  # here\n"),
        ("total + a[i] * b[i]", "total + a[i]", "total = total + a.sum(0)  # here\n"),
        ("total = total +", "total +=", "total += (a * b).sum(0)  # here\n"),
        ("a[i] * b[i]", "(a[i] - 2 * b[i]) / 3", "total = total + ((a - 2 * b) / 3).sum(0)  # here\n"),
        ("len(a)", "b.shape[0]", "total = total + (a * b).sum(0)  # here\n"),
    ],
)
def test_a_loop_that_adds_up_elements_becomes_their_sum(old, new, after):
    text = SUMMED.replace(old, new) if old else SUMMED
    made = changed(RULE, text)
    assert after in made
    assert "for " not in made
    assert printed(made) == printed(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(len(a))", "range(49)"),
        ("range(len(a))", "range(len(c))"),
        ("a[i] * b[i]", "a[i] * b[i - 1]"),
        ("a[i] * b[i]", "a[i] * b"),  # may be of other dimensions
        ("a[i] * b[i]", "a[i] * i"),
        ("a[i] * b[i]", "f(a[i])"),
        ("total + a", "total - a"),
        ("total + a[i]", "total * 2 + a[i]"),
        ("  # here\n", "  # here\n    print(i)\n"),
        ("print(round", "print(i, round"),
        ("torch.rand(50), torch.rand(50), torch.zeros(())", "0, 0, 0\na = [1.0, 2.0]"),
    ],
)
def test_another_loop_over_elements_is_no_sum(old, new):
    with pytest.raises(Refused):
        changed(RULE, SUMMED.replace(old, new))
