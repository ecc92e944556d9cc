"""Attention by Einstein's notation, or at the beginning of a chain: the fused call computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed

RULE = "unfused-attention"
TEXT = """import math, torch
import torch.nn.functional as F
def attend(q, k, v, mask, scale):
    scores = {scores}  # here
    weights = scores.softmax(dim=-1)
    out = {out}
    return out
"""
LATE = ("torch.einsum('bhqd,bhkd->bhqk', q, k) / 8", "torch.einsum('bhqk,bhkd->bhqd', weights, v)")


def attended(text: str, *shape: int, seed: int = 0) -> torch.Tensor:
    names: dict[str, Any] = {}
    exec(text, names)
    torch.manual_seed(seed)
    return names["attend"](*torch.randn(3, *shape).unbind(0), None, 0.3)


@pytest.mark.parametrize(
    ("scores", "out", "shape"),
    [
        (*LATE, (2, 3, 5, 4)),
        ("torch.einsum('bhqd, bhkd -> bhqk', q * scale, k)", LATE[1], (2, 3, 5, 4)),
        ("torch.einsum('bhqd,bhkd->bhqk', q * q.shape[-1] ** -0.5, k)", LATE[1], (2, 3, 5, 4)),
        ("torch.einsum('bhqd,bhkd->bhqk', q / math.sqrt(q.size(-1)), k + 1)", LATE[1], (2, 3, 5, 4)),
        ("torch.einsum('nqhd,nkhd->nhqk', q, k) * scale", "torch.einsum('nhql,nlhd->nqhd', weights, v)", (2, 5, 3, 4)),
        ("torch.einsum('nqhd,nkhd->nhqk', q, k + 1)", "torch.einsum('nhql,nlhd->nhqd', weights, v + 1)", (2, 5, 3, 4)),
        ("torch.einsum('bqd,bkd->bqk', q, k)", "torch.einsum('bqk,bkd->bqd', weights, v)", (2, 5, 4)),
        ("torch.einsum('bqd,bkd->bqk', q, k) * scale", "torch.bmm(weights, v).sum(1).tanh()", (2, 5, 4)),
        ("(q * scale) @ k.transpose(-2, -1)", "(weights @ v).transpose(1, 2).reshape(len(q), -1)", (2, 3, 5, 4)),
        ("q @ k.mT", "weights.matmul(v).permute(0, 2, 1, 3).contiguous()", (2, 3, 5, 4)),
    ],
)
def test_the_fused_call_computes_the_same(scores, out, shape):
    before = TEXT.format(scores=scores, out=out)
    after = changed(RULE, before)
    assert "softmax" not in after
    torch.testing.assert_close(attended(after, *shape), attended(before, *shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("scores", "out"),
    [
        ("torch.einsum('bhqd,bhkd->bhkq', q, k)", LATE[1]),
        ("torch.einsum('bhdq,bhkd->bhqk', q, k)", LATE[1]),
        ("torch.einsum('bhqd,bhqd->bhqd', q, k)", LATE[1]),
        ("torch.einsum('...qd,...kd->...qk', q, k)", LATE[1]),
        ("torch.einsum('qd,kd->qk', q, k)", LATE[1]),
        ("torch.einsum(formula, q, k)", LATE[1]),
        ("torch.einsum('bhqd,bhkd->bhqk', *both)", LATE[1]),
        ("torch.einsum('bhqd,bhkd->bhqk', q * mask, k)", LATE[1]),
        ("torch.einsum('bhqd,bhkd->bhqk', q + 1, k)", LATE[1]),
        ("torch.einsum('bhqd,bhkd->bhqk', q * scale, k) * scale", LATE[1]),
        (LATE[0], "torch.einsum('bhkq,bhkd->bhqd', weights, v)"),
        (LATE[0], "torch.einsum('bhqk,bhdk->bhqd', weights, v)"),
        (LATE[0], "torch.einsum('bhqk,bhkd->bqd', weights, v)"),
        (LATE[0], "torch.einsum('bhqk,bhkd->bhqd', v, weights)"),
        (LATE[0], "(weights @ v).view(weights.shape)"),
        (LATE[0], "self.drop(weights) @ v"),
        (LATE[0], "self.drop(weights @ v)"),
        (LATE[0], "(weights @ v) + weights.sum()"),
    ],
)
def test_another_product_stays(scores, out):
    with pytest.raises(Refused):
        changed(RULE, TEXT.format(scores=scores, out=out))
