"""A mask keeps what it means: both texts run, with rows of which nothing is left."""

from __future__ import annotations

import pytest
import torch

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed

TEXT = """
    import math
    import torch
    import torch.nn.functional as F
    def attend(q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # here
        scores = scores.masked_fill({out}, {value})
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
"""


def attend(text: str, *given: torch.Tensor) -> torch.Tensor:
    names: dict = {}
    exec(text, names)
    return names["attend"](*given)


@pytest.mark.parametrize("value", ["-1e9", "-1e30", "torch.finfo(torch.float32).min"])
@pytest.mark.parametrize("out", ["mask == 0", "~mask", "mask.logical_not()"])
def test_a_row_of_which_nothing_is_left_has_weights_that_are_all_alike(value, out):
    text = TEXT.format(out=out, value=value)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 8, 4) for _ in range(3))
    mask = torch.rand(2, 1, 8, 8) < 0.5
    mask[0, 0, 3] = False
    after = changed("unfused-attention", text)
    assert "scaled_dot_product_attention" in after
    expected = attend(_dedented(text), q, k, v, mask)
    assert torch.allclose(attend(after, q, k, v, mask), expected, atol=1e-5)
    assert torch.allclose(expected[0, 0, 3], v[0, 0].mean(0), atol=1e-5)  # which a mask of booleans gives no weight


def _dedented(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines())


@pytest.mark.parametrize("value", ["-1e4", "-65504", "0.0", "low"])
def test_what_may_leave_a_score_in_is_refused(value):
    with pytest.raises(Refused, match=f"the mask fills in `{value}`"):
        changed("unfused-attention", TEXT.format(out="mask", value=value))


def test_a_float64_keeps_what_is_added_to_a_number_as_large():
    with pytest.raises(Refused, match="a float64 does not swallow the scores"):
        changed("unfused-attention", TEXT.format(out="mask", value="-1e9") + "    x = x.double()\n")


def test_queries_without_a_name_have_no_type_to_give_to_the_mask():
    text = TEXT.format(out="mask", value="{}").replace("q @ k", "f(q) @ k").replace("math.sqrt(q.size(-1))", "8")
    with pytest.raises(Refused, match="give them a name first"):
        changed("unfused-attention", text.format("-1e9"))
    assert "attn_mask=~mask" in changed("unfused-attention", text.format("float('-inf')"))


def test_a_long_call_gets_a_line_for_each_argument():
    text = TEXT.format(out="padding_of_all_sentences", value="-1e9").replace("        return", "\treturn")
    assert (
        "    return F.scaled_dot_product_attention(\n        q,\n        k,\n        v,\n"
        "        attn_mask=torch.where(padding_of_all_sentences, -1e9, 0.0).to(q.dtype),\n    )\n"
    ) in changed("unfused-attention", TEXT.format(out="padding_of_all_sentences", value="-1e9"))
    tabs = _dedented(TEXT).format(out="padding_of_all_sentences", value="-1e9").replace("    ", "\t")
    assert "\treturn F.scaled_dot_product_attention(\n\t\tq,\n\t\tk,\n" in changed("unfused-attention", tabs)
    windows = tabs.replace("\n", "\r\n")
    assert "(\r\n\t\tq,\r\n\t\tk,\r\n" in changed("unfused-attention", windows)
