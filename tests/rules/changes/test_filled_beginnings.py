"""The first elements of each row are filled at once, where the loop does nothing else."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "tensor-element-loop"
TEXT = """import torch
x = torch.zeros(4, 5)
lengths = torch.tensor([0, 2, 5, 9])
mask = torch.zeros(4, 5, dtype=torch.bool)
# what is no padding
for i, length in enumerate(lengths):
    mask[i, :length] = True  # here
print(mask.int().tolist(), lengths.tolist())
"""


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, "mask[torch.arange(mask.shape[1]) < lengths.unsqueeze(1)] = True\n"),
        ({":length": "length:"}, "mask[torch.arange(mask.shape[1]) >= lengths.unsqueeze(1)] = True\n"),
        ({":length": ":length.item()"}, "< lengths.unsqueeze(1)] = True\n"),
        ({":length": "int(length):", "True": "-1"}, ">= lengths.unsqueeze(1)] = -1\n"),
        ({"i, length in enumerate(lengths)": "i in range(len(lengths))", ":length": ":lengths[i]"},
         "< lengths.unsqueeze(1)] = True\n"),
        ({"torch.zeros(4, 5, dtype=torch.bool)": "torch.ones_like(x).long()", "True": "7"},
         "< lengths.unsqueeze(1)] = 7\n"),
        ({"(4, 5, dtype=torch.bool)": "(4, 5, 3, device='cpu')"},
         "mask[torch.arange(mask.shape[1], device=mask.device) < lengths.to(mask.device).unsqueeze(1)] = True\n"),
    ],
)  # fmt: skip
def test_the_same_elements_are_filled(changes, after):
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    made = changed(RULE, text)
    assert after in made
    assert "# what is no padding\nmask[" in made
    assert "for " not in made
    assert printed(made) == printed(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[i, :length]", "[i + 1, :length]"),
        ("[i, :length]", "[i, :length + 1]"),
        ("[i, :length]", "[i, 1:length]"),
        ("[i, :length]", "[i, :length:2]"),
        ("[i, :length]", "[:length, i]"),
        ("[i, :length]", "[length, :i]"),
        ("= True  # here", "= length > 2  # here"),
        ("= True  # here", "= i  # here"),
        ("= True  # here", "= True  # here\n    lengths[i] = 1"),
        ("enumerate(lengths)", "enumerate(lengths, 1)"),
        ("enumerate(lengths)", "zip(range(4), lengths)"),
        ("torch.tensor([0, 2, 5, 9])", "[0, 2, 5, 9]"),
        ("torch.zeros(4, 5, dtype=torch.bool)", "x.view(4, 5)"),  # part of another tensor
        ("torch.zeros(4, 5, dtype=torch.bool)", "np.zeros((4, 5))"),
        ("print(", "print(length, "),
        ("True  # here\n", "True  # here\nelse:\n    print(3)\n"),
    ],
)
def test_loops_that_do_anything_else_stay(old, new):
    assert old in TEXT
    with pytest.raises(Refused):
        changed(RULE, TEXT.replace(old, new))
