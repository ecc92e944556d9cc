"""Batches padded to their own longest row: the text after the change, or the reason why there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from profkit.rules.changes import Refused, changed_file
from tests.fixes.cases import MARK
from tests.rules.changes.test_changes import finding

TRIM = "Pad each batch to its own longest row: `pad_sequence(rows, batch_first=True)` in the `collate_fn`."
SORT = "Batch rows of similar length: sort a shuffled stretch of the data by length and shuffle the batches."
FILLED = """def collate(batch):
\trows, labels = zip(*batch)
\tids = torch.zeros(len(batch), MOST, dtype=torch.long)
\tmask = torch.zeros((len(rows), MOST))
\tfor i, row in enumerate(rows):
\t\tn = {}
\t\tids[i, :n] = row[:n]
\t\tmask[i, :n] = 1
\treturn ids, mask, torch.tensor(labels)
"""


def trimmed(text: str, line: int, fix: str = TRIM) -> str:
    return changed_file(text.encode(), finding("padded-batch", line, fix)).decode()


def test_the_scenario_is_no_longer_padded():
    text = Path("scenarios/padded_to_maximum.py").read_text(encoding="utf-8")
    line = next(at for at, one in enumerate(text.splitlines(), 1) if MARK.search(one))
    before = "pad(tokens, (0, ALLOWED - tokens.shape[1]), value=PADDING)"
    assert trimmed(text, line) == text.replace(before, "tokens[:, :ALLOWED]")


@pytest.mark.parametrize(
    ("end", "longest"),
    [
        ("len(row)", "max(len(row) for row in rows)"),
        ("min(len(row), MOST)", "min(MOST, max(len(row) for row in rows))"),
        ("min(MOST, row.shape[0])", "min(MOST, max(row.shape[0] for row in rows))"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tensors_that_are_filled_row_by_row_get_the_longest_rows_length(end, longest, newline):
    after = FILLED.replace("\tids = ", f"\tlongest = {longest}\n\tids = ")
    after = after.replace("(len(batch), MOST,", "(len(batch), longest,").replace(
        "(len(rows), MOST)", "(len(rows), longest)"
    )
    text = FILLED.format(end).replace("\n", newline)
    assert trimmed(text, 3) == after.format(end).replace("\n", newline)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "    return torch.stack([F.pad(r, (0, most - len(r))) for r in batch])\n",
            (
                "    longest = min(most, max(len(r) for r in batch))\n"
                "    return torch.stack([F.pad(r, (0, longest - len(r))) for r in batch])\n"
            ),
        ),
        (
            "    return torch.tensor([[0] * (most - len(ids)) + ids for ids, _ in batch])\n",
            (
                "    longest = max(len(ids) for ids, _ in batch)\n"
                "    return torch.tensor([[0] * (longest - len(ids)) + ids for ids, _ in batch])\n"
            ),
        ),
        (
            "    return torch.tensor([ids[:most] + [0] * (most - len(ids)) for ids, label in batch])\n",
            (
                "    longest = min(most, max(len(ids) for ids, _ in batch))\n"
                "    return torch.tensor([ids[:most] + [0] * (longest - len(ids)) for ids, label in batch])\n"
            ),
        ),
        (
            (
                "    x = new.new_full((4, most), 1)\n    for i, s in enumerate(batch):\n"
                "        row = s['ids'][:most]\n        x[i, -len(row):] = row\n    return x\n"
            ),
            (
                "    longest = min(most, max(len(s['ids']) for s in batch))\n"
                "    x = new.new_full((4, longest), 1)\n    for i, s in enumerate(batch):\n"
                "        row = s['ids'][:most]\n        x[i, -len(row):] = row\n    return x\n"
            ),
        ),
        (
            (
                "    x = [F.pad(a, (0, most - len(a))) for a in batch.x]\n"
                "    return x, [f(most - len(b)) for b in batch.y]\n"
            ),
            (
                "    longest = min(most, max(len(a) for a in batch.x))\n"
                "    x = [F.pad(a, (0, longest - len(a))) for a in batch.x]\n"
                "    longest_2 = min(most, max(len(b) for b in batch.y))\n"
                "    return x, [f(longest_2 - len(b)) for b in batch.y]\n"
            ),
        ),
        (
            (
                "    ids = torch.tensor([row + [0] * (most - len(row)) for row in batch])\n"
                "    return ids, torch.arange(most)[None] < lengths[:, None]\n"
            ),
            (
                "    longest = max(len(row) for row in batch)\n"
                "    ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])\n"
                "    return ids, torch.arange(longest)[None] < lengths[:, None]\n"
            ),
        ),
        (
            "    return tok(batch, padding='max_length', max_length=most)\n",
            "    return tok(batch, padding='longest', max_length=most)\n",
        ),
    ],
)
def test_rows_that_are_padded_one_by_one(before, after):
    head = "@cached\ndef collate(batch, most=64):\n"
    assert trimmed(head + before, 3) == head + after


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "n = max(map(len, batch))\n    x = [f(n - len(r)) for r in batch]",
            "line 2 sets `n`, so it may be the longest row's length",
        ),
        ("return [f(M - len(r)) for r in batch], arange(M)", "line 2 uses `M` for something else"),
        ("return [f(M - len(r)) for r in batch if r]", "the rows are chosen by a condition, or by several loops"),
        ("return [f(M - len(r)) for r in map(g, batch)]", "`map(g, batch)` may give its rows once only"),
        ("rows = (g(r) for r in batch); return [f(M - len(r)) for r in rows]", "the line is not one plain statement"),
        ("return f(M - len(batch))", "no loop shows which rows `len(batch)` is the length of"),
        ("return f(M) - g(len(batch))", "the line does not show one fixed length"),
        ("x = zeros(4, M)", "the lines do not show which rows `x` is filled with"),
        ("x = zeros(4, M); return x", "the line is not one plain statement"),
        ("return pad(batch, (0, M - batch.shape[1]))", "line 2 uses `M` for something else"),
    ],
)
def test_what_the_text_does_not_prove_is_refused(body, why):
    with pytest.raises(Refused, match="^" + re.escape(why)):
        trimmed(f"def collate(batch):\n    {body}\n", 1 + len(body.splitlines()))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("    rows = (g(r) for r in batch)\n    x = [f(M - len(r)) for r in rows]", "`rows` gives its rows once only"),
        (
            "    rows = batch\n    if a:\n        rows = b\n    x = [f(M - len(r)) for r in rows]",
            "`rows` is set at several places in that function",
        ),
        (
            "    x = zeros(4, M)\n    rows = g(batch)\n    for i, r in enumerate(rows):\n        x[i, :len(r)] = r",
            "`rows` is set after line 2",
        ),
        (
            "    x = zeros(4, M)\n    for i, (r, s) in enumerate(batch):\n        x[i, :len(r)] = x[i, :len(s)] = r",
            "the lines do not show which rows `x` is filled with",
        ),
        (
            "    x = zeros(4, M)\n    for i, r in enumerate(batch):\n        x[i, :most] = r",
            "`most` is set at no places",
        ),
        (
            "    x = zeros(4, M)\n    for i, r in enumerate(batch):\n        x[i, 1:] = r",
            "`x[i, 1:]` does not show how long a row is",
        ),
        ("    use(zeros(4, M))", "line 2 does not keep what it makes in a variable"),
    ],
)
def test_rows_that_are_others_or_not_there_yet_are_refused(lines, why):
    line = next(at for at, one in enumerate(lines.splitlines(), 2) if "M" in one)
    with pytest.raises(Refused, match="^" + re.escape(why)):
        trimmed(f"def collate(batch):\n{lines}\n", line)


def test_which_rows_share_a_batch_is_left_to_the_author():
    with pytest.raises(Refused, match=r"which rows share a batch is the author's choice$"):
        trimmed("x = pad_sequence(rows)\n", 1, SORT)


def test_a_single_row_does_not_know_its_batch():
    text = "class D:\n    def __getitem__(self, i):\n        return tok(self.t[i], padding='max_length')\n"
    with pytest.raises(Refused, match=r"^the line pads a single row, and does not know the others of its batch$"):
        trimmed(text, 3)


COLLATES = {
    "filled": "x = torch.zeros(len(batch), 12)\n    for i, r in enumerate(batch):\n        n = min(len(r), 12)\n"
    "        x[i, :n] = r[:n]\n    return x",
    "filled from the right": "x = torch.full((len(batch), 12), 7.0)\n    for i, r in enumerate(batch):\n"
    "        r = r[:12]\n        x[i, 12 - len(r):] = r\n    return x",
    "padded": "return torch.stack([F.pad(r, (0, 12 - len(r)), value=7) for r in batch])",
    "padded before": "return torch.stack([F.pad(r, (12 - r.numel(), 0)) for r in batch])",
    "joined": "x = pad_sequence(batch, batch_first=True)\n    x = F.pad(x, (0, 12 - x.size(1)))\n    return x",
    "lists": "return torch.tensor([r.tolist()[:12] + [0.0] * (12 - len(r)) for r in batch])",
}


@pytest.mark.parametrize("lengths", [(3, 9, 5), (4, 15, 2), (12, 1)])
@pytest.mark.parametrize("name", COLLATES)
def test_what_is_left_is_the_batch_up_to_its_longest_row(name, lengths):
    """Rows that are longer than the fixed length are cut as before."""
    text = f"def collate(batch):\n    {COLLATES[name]}\n"
    line = next(at for at, one in enumerate(text.splitlines(), 1) if "12" in one)
    rows, made = [torch.rand(length) for length in lengths], list[torch.Tensor]()
    for one in (text, trimmed(text, line)):
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "pad_sequence": pad_sequence}
        exec(one, names)
        made.append(names["collate"](rows))
    before, after = made
    longest = min(12, max(lengths))
    assert after.shape == (len(rows), longest)
    is_left = name in ("filled from the right", "padded before")
    assert torch.equal(after, before[:, -longest:] if is_left else before[:, :longest])
