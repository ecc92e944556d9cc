"""A sum that stays on the device is the number that Python added up, of every type of tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed

SUM = """import torch
torch.manual_seed(0)
data = [{tensor} for _ in range(300)]
total = {start}
for x in data:
    total += {read}  # here
"""


def run(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(text, names)  # a program of a test
    return names["total"]


@pytest.mark.parametrize("start", ["0", "0.0"])
@pytest.mark.parametrize(
    "tensor",
    [
        "torch.full((), 500.0, dtype=torch.float16)",
        "(torch.rand(()) + 3).bfloat16()",
        "torch.rand(())",
        "torch.rand(1, 1, dtype=torch.float64)",
        "torch.tensor(3)",
        "torch.tensor(100, dtype=torch.int8)",
        "torch.tensor(2**30, dtype=torch.int32)",
        "torch.tensor(True)",
    ],
)
@pytest.mark.parametrize("read", ["x.item()", "float(x)", "x.item() * 3", "x.cpu().item() / 7"])
def test_the_sum_is_exact(tensor, start, read):
    before = SUM.format(tensor=tensor, start=start, read=read)
    expected, found = run(before), run(changed("host-sync-in-step", before))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("read", "kept"),
    [
        ("(f(x) == y).sum().item()", "(f(x) == y).sum().detach()"),
        ("f(x).eq(y).sum().item()", "f(x).eq(y).sum().detach()"),
        ("torch.sum(f(x) > 0).item()", "torch.sum(f(x) > 0).detach()"),
        ("f(x).mean().item()", "f(x).mean().detach().double()"),
        ("F.cross_entropy(f(x), y).item()", "F.cross_entropy(f(x), y).detach().double()"),
        ("criterion(f(x), y).item() * len(x)", "criterion(f(x), y).detach().double() * len(x)"),
    ],
)
def test_what_the_text_shows_needs_no_question(read, kept):
    text = f"import torch\nt = 0\nfor x, y in d:\n    t += {read}  # here\n"
    assert f"    t += {kept}  # here\n" in changed("host-sync-in-step", text)


def test_a_loss_is_no_whole_number_if_it_has_gradients():
    text = "import torch\nt = 0\nfor x in d:\n    y = f(x)\n    y.backward()\n    t += y.item()  # here\n"
    assert "t += y.detach().double()" in changed("host-sync-in-step", text)
    with pytest.raises(Refused, match="nothing shows whether whole numbers are added up"):
        changed("host-sync-in-step", "import torch\nt = 0\nfor x in d:\n    t += f(x).item()  # here\n")


def test_half_a_hundred_thousand_is_not_lost_in_half_precision():
    names: dict[str, Any] = {}
    exec(
        changed("host-sync-in-step", SUM.format(tensor="torch.tensor(500.0).half()", start="0.0", read="x.item()")),
        names,
    )
    assert names["total"] == 150_000
    assert torch.finfo(torch.float16).max < names["total"]
