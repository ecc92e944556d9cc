"""A tensor of a list of arrays is joined by NumPy, where the text shows that they are arrays."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from profkit.rules.changes import AltersNumbers, Refused
from tests.rules.changes.test_restructured import changed

RULE = "slow-tensor-construction"
TEXT = """import numpy as np
import torch
data = [np.arange(n).astype(np.{kind}) for n in (1, 2, 3)]
def pad(rows):
    return [np.pad(row, (0, 3 - len(row))) for row in rows]
found = {made}, torch.tensor([len(row) for row in data])  # here
"""


def tensors(text: str) -> tuple[torch.Tensor, ...]:
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's about the list that is changed here
        exec(text, names)
    return names["found"]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "made", ["torch.tensor(pad(data))", "torch.tensor([np.pad(x, (0, 3 - len(x))) for x in data])"]
)
def test_the_tensor_is_the_same(kind, made):
    before = TEXT.format(kind=kind, made=made)
    after = changed(RULE, before)
    assert "torch.tensor(np.asarray(" in after
    for old, new in zip(tensors(before), tensors(after), strict=True):
        assert old.dtype == new.dtype
        assert torch.equal(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return [np", "if rows: return [1.0]\n    return [np"),
        ("return [np.pad(row, (0, 3 - len(row))) for", "return [len(row) for"),
        ("return [np.pad(row, (0, 3 - len(row))) for", "return [np.mean(row) for"),
        ("return [np.pad(row, (0, 3 - len(row))) for", "return [np.pad(row, 1).tolist() for"),
        ("def pad", "@cached\ndef pad"),
        ("def pad", "def pad(rows):\n    return [0.5]\ndef pad"),
        ("import numpy as np", "from numpy import *"),
        ("torch.tensor(pad(data)),", "torch.tensor(other.pad(data)),"),
        ("torch.tensor(pad(data)),", "torch.tensor(pad(data)), torch.tensor(pad(data)),"),
        ("torch.tensor(pad(data)),", "torch.tensor(data=pad(data)),"),
    ],
)
def test_what_may_be_numbers_stays(old, new):
    text = TEXT.format(kind="float32", made="torch.tensor(pad(data))")
    assert old in text
    with pytest.raises(Refused):
        changed(RULE, text.replace(old, new))


ANNOTATED = """import numpy as np
class State:
    rows: {of_state}
def step(state, data: {of_data}):
    for rows in state.rows:
        x = torch.tensor({given})  # here
"""


@pytest.mark.parametrize(
    ("of_state", "of_data", "given"),
    [
        ("list[list[NDArray[np.float32]]]", "int", "rows"),
        ("list[NDArray[np.float32]]", "int", "state.rows"),
        ("int", "Sequence[np.ndarray]", "data"),
        ("int", "typing.List[numpy.typing.NDArray[np.int64]]", "data"),
    ],
)
def test_an_annotation_may_say_that_they_are_arrays(of_state, of_data, given):
    before = ANNOTATED.format(of_state=of_state, of_data=of_data, given=given)
    assert changed(RULE, before) == before.replace(f"({given})", f"(np.asarray({given}))")


@pytest.mark.parametrize(
    ("of_state", "of_data", "given"),
    [
        ("list[list[float]]", "int", "rows"),
        ("list[NDArray[np.float32]]", "int", "rows"),  # rows is an array: that is fast enough
        ("int", "dict[str, np.ndarray]", "data"),
        ("int", "list[np.ndarray]", "data; data = [0.5]"),
        ("int", "list[np.ndarray]", "other"),
    ],
)
def test_without_one_the_type_may_become_another(of_state, of_data, given):
    before = ANNOTATED.format(of_state=of_state, of_data=of_data, given="{}")
    given, _, behind = given.partition("; ")
    before = before.format(given) + f"    {behind}\n"
    with pytest.raises(AltersNumbers, match="of a list of numbers it makes float64; --unsafe tries it"):
        changed(RULE, before)


def test_a_list_of_numbers_in_a_file_without_numpy_needs_both():
    before = "import torch\nx = torch.tensor([row.x for row in rows])  # here\n"
    with pytest.raises(AltersNumbers) as raised:
        changed(RULE, before)
    made = before.replace("([row.x for row in rows])", "(np.asarray([row.x for row in rows]))")
    assert raised.value.after.decode() == made.replace("import torch\n", "import torch\nimport numpy as np\n")
