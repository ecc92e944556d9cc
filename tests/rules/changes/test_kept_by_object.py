"""What a method makes anew in each call: the text that keeps it, or the reason why there is none."""

from __future__ import annotations

import re

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_changes import changed

MODEL = """import torch
STEP = 3
class Net(nn.Module):
\t# how large
\tdef __init__(self, args, size):
\t\tsuper().__init__()
\t\tself.args, self.size = args, size
\t\tself.width: int = max(size, 2)
\t\tself.layer = nn.Linear(2, 2)  # last
\tdef forward(self, x):
\t\ttable = {}
\t\ty = self.layer(x) + table
\t\treturn y * table.sum()
"""
KEPT = """\t\tself.layer = nn.Linear(2, 2)  # last
\t\tself.table = {}
\tdef forward(self, x):
\t\ty = self.layer(x) + self.table
\t\treturn y * self.table.sum()
"""
FIX = "Compute it once, before the loop or where the module is made, and again only when its inputs change."


def kept(text: str, fix: str = FIX) -> str:
    line = next(at for at, one in enumerate(text.splitlines(), 1) if one.strip().startswith("table = "))
    return changed("redundant-recomputation", text, line, fix)


@pytest.mark.parametrize("value", ["torch.arange(self.size)", "make(self.args.n * STEP, self.width)", "torch.eye(3)"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("fix", [FIX, "Compute it once and pass the result on"])
def test_a_table_is_made_where_its_object_is(value, end, fix):
    text = MODEL.format(value).replace("\n", end)
    before = text[: text.index("\t\tself.layer = ")]
    assert kept(text, fix) == before + KEPT.format(value).replace("\n", end)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("torch.eye(x.size(0))", "`x`, which it reads, is known in the call alone"),
        ("torch.eye(3, device=self.args.device)", "`device` may be another once the object is made"),
        ("self.layer.weight.softmax(0)", "`weight` may be another once the object is made"),
        ("self.make(3)", "`self.make` is called, which may do more than compute"),
        ("make(self)", "it reads all of `self`"),
        ("make(self.other)", "`self.other`, which it reads, is not set by `__init__` alone"),
        ("make(self.layer)", "`self.layer`, which it reads, may be a tensor or a module that changes"),
        ("torch.rand(3)", "the line calls `rand`, which gives something else each time"),
    ],
)
def test_what_the_object_does_not_know_for_good_is_made_anew(value, why):
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        kept(MODEL.format(value))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("net.size = 4\n", "`self.size`, which it reads, is not set by `__init__` alone"),
        ("net.args.n += 1\n", "`self.args`, which it reads, is not set by `__init__` alone"),
        ("setattr(net, name, 4)\n", "line 14 may set attributes whose names are in no code"),
        ("STEP = 4\n", "`STEP`, which it reads, is set at several places"),
        ("print(net.table)\n", "something has an attribute `table` already"),
        ("\t\ttable += 1\n", "`table` changes in the function"),
        ("\t\ttable.add_(1)\n", "`table` changes in the function"),
    ],
)
def test_what_others_may_change_is_made_anew(more, why):
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        kept(MODEL.format("make(self.size, self.args.n, STEP)") + more)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("class Net(", "@dataclass\nclass Net(", "`Net` has decorators, or its method no `self`"),
        (
            "__init__(self, args, size)",
            "build(self, args, size)",
            "`Net` has no plain `__init__` that could make it once",
        ),
        ("\tdef forward", "\t@cached\n\tdef forward", "the line stands in no loop of its function"),
        ("\t\ttable = ", "\t\tif x:\n\t\t\ttable = ", "the line stands in no loop of its function"),
    ],
)
def test_a_class_that_does_not_show_how_it_is_made_is_left_alone(before, after, why):
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        kept(MODEL.format("torch.eye(3)").replace(before, after))


FUNCTION = "def make(n):\n\tones = {}\n\treturn ones.cumsum(0)\n"


def in_function(value: str, more: str = "", line: int = 15) -> str:
    text = MODEL.format("make(self.size)") + FUNCTION.format(value) + more
    return changed("redundant-recomputation", text, line, FIX)


@pytest.mark.parametrize("line", [15, 16])
def test_a_line_of_a_function_that_one_line_alone_calls_stands_for_that_line(line):
    before = MODEL[: MODEL.index("\t\tself.layer = ")]
    assert in_function("torch.ones(n)", line=line) == before + KEPT.format("make(self.size)") + FUNCTION.format(
        "torch.ones(n)"
    )


@pytest.mark.parametrize(
    ("value", "more", "why"),
    [
        ("torch.rand(n)", "", "the line calls `rand`, which gives something else each time"),
        ("torch.ones(n)", "print(make(3))\n", "the line stands in no loop of its function"),
        ("torch.ones(STEP)", "STEP = 5\n", "`STEP`, which it reads, is set at several places"),
        ("torch.ones(n)", "other = make\n", "the line stands in no loop of its function"),
    ],
)
def test_a_function_that_others_call_or_that_draws_is_left_alone(value, more, why):
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        in_function(value, more)
