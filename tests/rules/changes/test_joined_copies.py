"""A tensor that is joined with itself is expanded: the text after the change, or the reason why there is none."""

from __future__ import annotations

import re

import pytest
import torch

from profkit.rules.changes import Refused
from tests.rules.changes.test_changes import changed

IMPORT = "import torch as T\n"


def expanded(line: str) -> str:
    return changed("materialised-broadcast", f"{IMPORT}{line}\n", 2).removeprefix(IMPORT).rstrip("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = T.stack([x] * n)  # as many", "y = x.expand(n, *x.shape)  # as many"),
        ("y = T.stack(n * [x], dim=0)", "y = x.expand(n, *x.shape)"),
        ("y = T.stack([x for _ in range(len(z))], 1) - z", "y = x.unsqueeze(1).expand(-1, len(z), *x.shape[1:]) - z"),
        ("y = T.stack((s.x, s.x, s.x), dim=-1)", "y = s.x.unsqueeze(-1).expand(*s.x.shape, 3)"),
        ("y = T.cat([x] * n)", "y = x.expand(n, *x.shape[1:])"),
        ("y = T.cat([x, x], dim=1)", "y = x.expand(-1, 2, *x.shape[2:])"),
        ("y = T.concat([x] * n, -1)", "y = x.expand(*x.shape[:-1], n)"),
        ("y = T.cat([p.repeat(n, 1), q])", "y = T.cat([p.expand(n, -1), q])"),
    ],
)
def test_copies_are_expanded(before, after):
    assert expanded(before) == after


@pytest.mark.parametrize("function", ["stack", "cat"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_what_is_expanded_is_what_was_joined(function, dim):
    shape = [4, 5, 6] if function == "stack" else [1, 1, 1]
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    before = f"T.{function}([x] * 3, dim={dim})"
    names = {"T": torch, "x": x}
    assert torch.equal(eval(before, names), eval(expanded(before), names))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("y = T.stack([x, z])", "the line does not show how often one tensor is joined"),
        ("y = T.stack(rows)", "the line does not show how often one tensor is joined"),
        ("y = T.stack([x for x in range(n)])", "the tensors that are joined are others in each round"),
        ("y = T.stack([x for _ in range(n) if z])", "the line does not show how often one tensor is joined"),
        ("y = T.stack([f(x)] * n)", "`f(x)` would be computed twice: give it a name first"),
        ("y = T.stack([x] * n, dim=2)", "the copies are joined along dimension 2"),
        ("y = T.stack([x] * n, out=z)", "the call takes more than the copies and their dimension"),
        ("y = np.stack([x] * n)", "`np.stack` may be another function than PyTorch's"),
        ("y = T.stack([x] * n); y += 1", "`y` is changed in place"),
        ("y = T.stack([x] * n).add_(z)", "line 2 changes the result in place"),
    ],
)
def test_what_is_no_plain_copy_is_refused(line, why):
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        expanded(line)
