"""A loop that makes a row of each row becomes one call: the same numbers, or no change."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "tensor-element-loop"
ROWS = """import torch
torch.manual_seed(0)
eps, x, w = 1e-6, torch.rand(7, 3, 2), torch.rand(7)

# of length one
out = torch.empty_like(x)
for i in range(len(x)):
    row = x[i]
    out[i] = row / (row.norm() + eps)  # here
print([round(one, 4) for one in out.flatten().tolist()])
"""


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("", "", "out = torch.vmap(lambda row: row / (row.norm() + eps))(x)\n"),
        ("len(x)", "x.shape[0]", "out = torch.vmap(lambda row: row / (row.norm() + eps))(x)\n"),
        ("    row = x[i]\n    out[i] = row / (row.norm() + eps)", "    out[i] = x[i] - x[i].mean()",
         "out = torch.vmap(lambda row: row - row.mean())(x)\n"),
        ("row / (row.norm() + eps)", "2 * torch.exp(row - row.max())", "row: 2 * torch.exp(row - row.max()))(x)"),
    ],
)  # fmt: skip
def test_rows_of_any_number_of_dimensions_are_made_at_once(old, new, after):
    text = ROWS.replace(old, new) if old else ROWS
    made = changed(RULE, text)
    assert after in made
    assert "for i" not in made
    assert "empty_like" not in made
    assert printed(made) == printed(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("len(x)", "len(x) - 1"),  # the last row stays
        ("len(x)", "3"),
        ("row = x[i]", "row = x[i - 1]"),
        ("row = x[i]", "row = w[i]"),
        ("row / (row.norm() + eps)", "torch.exp(row).sum(0) * 2"),  # fills the row with less than a row
        ("row / (row.norm() + eps)", "eps * row.mean()"),
        ("row.norm()", "x.norm()"),  # of all rows
        ("row.norm()", "out[i - 1].norm()"),  # of the row before
        ("row.norm()", "i"),
        ("row.norm()", "row.norm().item()"),
        ("row.norm()", "measured(row)"),
        ("row.norm()", "max(row)"),
        ("row.norm()", "row.add_(1).sum()"),
        ("row.norm()", "row.std(correction=0)"),
        ("row / (", "row @ ("),
        ("  # here\n", "  # here\n    print(i)\n"),
        ("print([", "print(row, ["),
        ("out = torch.empty_like(x)", "out = torch.zeros(9, 3, 2)"),
        ("out = torch.empty_like(x)", "out = torch.empty_like(w)"),
        ("out = torch.empty_like(x)", "out = torch.empty_like(x)\nkept = out"),
        ("out = torch.empty_like(x)", "out = torch.empty_like(x)\nout[0] = 1"),
        ("out = torch.empty_like(x)", "out = torch.empty_like(x, dtype=torch.float64)"),
        ("import torch\n", "import torch\nx = [torch.rand(3)]\n"),
    ],
)
def test_rows_that_may_become_others_are_made_one_by_one(old, new):
    with pytest.raises(Refused):
        changed(RULE, ROWS.replace(old, new, 1))
