"""Tables with sparse gradients: the text after the change, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.rules.changes import AlreadyMade, Refused, changed_file
from tests.fixes.cases import MARK
from tests.rules.changes.test_changes import finding

SPARSE = "Make the table with `nn.Embedding(…, sparse=True)`: its gradient then holds only the rows looked up"
BY_SGD = f"{SPARSE}, and SGD updates these. It must stay without momentum and weight decay."
BY_ADAGRAD = f"{SPARSE}, and Adagrad updates these. It must stay without momentum and weight decay."
BY_ADAM = f"{SPARSE}, and `torch.optim.SparseAdam` updates these. Give it the table, and Adam the rest."
MODEL = """import torch
from torch import nn
class Net(nn.Module):
\tdef __init__(self, words, pretrained):
\t\tself.words: nn.Embedding = {}
\t@torch.jit.unused
\tdef forward(self, ids):
\t\treturn self.words(ids)  # looked up
"""


def made(text: str, line: int, fix: str = BY_SGD, rows: int = 5000) -> str:
    found = replace(finding("dense-embedding-gradient", line, fix), evidence={"rows": rows})
    return changed_file(text.encode(), found).decode()


def test_the_scenario_becomes_its_known_fix():
    text = Path("scenarios/dense_embedding_gradient.py").read_text(encoding="utf-8")
    line = next(at for at, one in enumerate(text.splitlines(), 1) if MARK.search(one))
    after = made(text, line, BY_ADAGRAD, 100_000)
    assert after == text.replace("(state.table, freeze=False)", "(state.table, freeze=False, sparse=True)", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nn.Embedding(words, 8)", "nn.Embedding(words, 8, sparse=True)"),
        ("nn.Embedding(5_000, 8, sparse=False)", "nn.Embedding(5_000, 8, sparse=True)"),
        (
            "nn.EmbeddingBag(\n\t\t\twords,\n\t\t\t8,\n\t\t)",
            "nn.EmbeddingBag(\n\t\t\twords,\n\t\t\t8,\n\t\t\tsparse=True,\n\t\t)",
        ),
        ("nn.Sequential(nn.Embedding(words, 8), f())", "nn.Sequential(nn.Embedding(words, 8, sparse=True), f())"),
        (
            "nn.ModuleList(nn.Embedding(n, 8) for n in words)",
            "nn.ModuleList(nn.Embedding(n, 8, sparse=True) for n in words)",
        ),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_the_class_is_made_sparse(before, after, end):
    text = MODEL.format(before).replace("\n", end)
    line = 1 + text[: text.index("self.words(ids)")].count("\n")
    assert made(text, line) == MODEL.format(after).replace("\n", end)


def test_of_several_tables_those_that_may_have_so_many_rows_are_changed():
    text = "a, b, c = nn.Embedding(7, 2), nn.Embedding(n, 2), nn.Embedding(5000, 2)\nx = a(i) + b(i) + c(i)\n"
    expected = text.replace("(n, 2)", "(n, 2, sparse=True)").replace("(5000, 2)", "(5000, 2, sparse=True)")
    assert made(text, 2) == expected


def test_a_function_that_looks_up_takes_the_argument_itself():
    text = "import torch.nn.functional as F\nx = F.embedding(ids, weight)\n"
    assert made(text, 2) == text.replace("weight)", "weight, sparse=True)")


@pytest.mark.parametrize(
    ("rest", "fix", "why"),
    [
        ("", BY_ADAM, "Adam takes no sparse gradients: SparseAdam would train the table, but not as Adam does"),
        ("clip_grad_value_(p, 1.0)\n", BY_SGD, "line 3 clips gradients, which takes dense ones"),
        ("o = SGD(p, lr, args.m)\n", BY_SGD, "`momentum` is `args.m`: SGD takes sparse gradients only without it"),
        (
            "o = partial(optim.SGD, momentum=m)\n",
            BY_SGD,
            "`momentum` is `m`: SGD takes sparse gradients only without it",
        ),
        ("o = Adagrad(p, weight_decay=wd)\n", BY_ADAGRAD, "`weight_decay` is `wd`: Adagrad takes sparse"),
    ],
)
def test_what_needs_dense_gradients_is_refused(rest, fix, why):
    with pytest.raises(Refused, match="^" + why.replace("(", "[(]")):
        made(f"t = nn.Embedding(n, 2)\nx = t(i)\n{rest}", 2, fix)


def test_arguments_that_are_zero_rule_nothing_out():
    text = "t = nn.Embedding(n, 2)\nx = t(i)\no = SGD(p, lr=0.1, momentum=0.0, weight_decay=0)\n"
    assert made(text, 2) == text.replace("n, 2)", "n, 2, sparse=True)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = table(i)\n", "the file does not show where the table of that line is made"),
        ("table = make(n)\nx = table(i)\n", "the file does not show where the table of that line is made"),
        ("t = nn.Embedding(n, 2, sparse=flag)\nx = t(i)\n", "`sparse` is `flag`, which may have a reason"),
        ("t = nn.Embedding(*sizes)\nx = t(i)\n", "the call takes arguments that the line does not show"),
    ],
)
def test_a_table_that_the_text_does_not_show_is_refused(text, why):
    with pytest.raises(Refused, match="^" + why + "$"):
        made(text, text.count("\n"))


def test_a_second_finding_of_the_line_is_told_that_it_is_done():
    with pytest.raises(AlreadyMade, match=r"^the tables of that line are made with `sparse=True`$"):
        made("t = nn.Embedding(n, 2, sparse=True)\nx = t(i)\n", 2)
