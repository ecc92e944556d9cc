"""A number that is read at once and used further down is read there: what the program prints stays."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "host-sync-in-step"
EARLY = """import torch
data = [torch.full((), 0.1 * i) for i in range(7)]
total, seen = 0.0, []
def main():
    total = 0.0
    for n, x in enumerate(data):
        loss = x * 2
        # for the log
        value = loss.item()  # here
        total += value
        if n % 3 == 0:
            print(f"{value:.3f}")
    return total
print(main())
"""


def same(text: str) -> str:
    after = changed(RULE, text)
    assert printed(after) == printed(text)
    return after


def refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        changed(RULE, text)


def test_the_number_is_read_where_it_is_used():
    assert same(EARLY).splitlines()[4:13] == [
        "    total = 0.0",
        "    for n, x in enumerate(data):",
        "        loss = x * 2",
        "        # for the log",
        "        total += loss.detach().double()",
        "        if n % 3 == 0:",
        '            print(f"{loss.item():.3f}")',
        "    total = float(total)",
        "    return total",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        total += value\n", ""),
        ("        total += value\n", "        seen.append(x)\n"),
        ("loss.item()", "float(loss)"),
        ("    ", "\t"),
        ("\n", "\r\n"),
    ],
)  # fmt: skip
def test_reads_in_other_words(old, new):
    same(EARLY.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("total += value", "loss *= 2\n        total += value", "changes `loss` before its number is used"),
        ("total += value", "loss = 2 * x\n        total += value", "changes `loss` before its number is used"),
        ("total += value", "loss.add_(1)\n        total += value", "changes `loss` before its number is used"),
        ("total += value", "total += value\n        print(value)", "uses `value` in each round, too"),
        ("total += value", "total += value\n        value = 0", "sets `value` too"),
        ("if n % 3 == 0:", "if value < 3:", "uses `value` in each round, too"),
        ("if n % 3 == 0:", "if n > 9:\n            pass\n        elif value < 3:", "uses `value` in each round, too"),
        ("return total", "return total, value", "reads `value` outside of its round"),
        ("total += value", "[total for _ in [0]]\n        for _ in [0]: total += value", "outside of its round"),
        ("total += value", "f = lambda: value", "shares `value` with another function"),
        ("    total = 0.0\n", "    global value\n    total = 0.0\n", "shares `value` with another function"),
        ("loss.item()", "d['a'].item()", "in a text, whose quotes"),
        ("loss.item()", "loss.item(\n)", "stands on several lines"),
    ],
)
def test_another_number_or_use_keeps_the_read(old, new, reason):
    refused(EARLY.replace(old, new), reason)


TWO = """import torch

class Both:
    def __init__(self):
        self.sum, self.hits = 0, 0

    def update(self, value, hits, n=1):
        self.sum += value * n
        self.hits += hits
"""
LOOP = """
both = Both()
for i in range(7):
    loss, hits = torch.full((), 0.1 * i), torch.tensor(i)
    both.update({})  # here
    if i == 3:
        print(both.sum)
print(both.sum, both.hits)
"""


@pytest.mark.parametrize(
    "given", ["loss.item(), hits.item()", "hits=hits.item(), value=float(loss), n=i", "loss.item(), 1, hits.item()"]
)
def test_several_numbers_of_one_update_are_read_behind_the_loop(given):
    after = same(TWO + LOOP.format(given))
    assert "numbers_2 = torch.stack([entry[1] for entry in noted])" in after
    assert after.count(".item()") == 0


def test_one_of_several_tensors_that_changes_later_keeps_all():
    text = TWO + LOOP.format("loss.item(), hits.item()")
    refused(text.replace("    if i == 3", "    hits += 1\n    if i == 3"), "`hits` may be the same tensor")
