"""Where data may become float64, as far as the source shows."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from profkit.source.doubles import double_makers
from profkit.source.remarks import review_sources


def lines_of(tmp_path: Path, source: str) -> list[int]:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    return [remark.site.line for remark in review_sources([str(file)]) if remark.kind.startswith("doubles-")]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.from_numpy(table)",
        "torch.as_tensor(table, device=device)",
        "torch.tensor(table.values)",
        "torch.zeros(4, dtype=torch.float64)",
        "torch.linspace(0, 1, 9, dtype=torch.double)",
        "torch.from_numpy(table).reshape(-1, 4)",
        "from_numpy(table)",
        "model(torch.from_numpy(table).to(device))",
        "torch.from_numpy(table).to('cuda', non_blocking=True)",
        "x.double()",
        "x.to(torch.float64)",
        "torch.set_default_dtype(torch.float64)",
    ],
)
def test_a_line_that_may_make_doubles_is_remarked(tmp_path, expression):
    assert lines_of(tmp_path, f"import torch\ny = {expression}\n") == [2]


@pytest.mark.parametrize(
    "expression",
    [
        "0.5 * (1 + torch.erf(torch.from_numpy(table) / 2).numpy())",
        "model(torch.as_tensor(table)).mean().item()",
        "torch.from_numpy(table).float()",
        "torch.from_numpy(table)[1:].to(x.dtype)",
        "torch.from_numpy(table).to(device, torch.float32)",
        "torch.from_numpy(table).to(device, dtype=kind)",
        "torch.from_numpy(table.astype(np.float32))",
        "torch.from_numpy(labels.astype(np.int64))",
        "torch.tensor([1.0, 2.0])",
        "torch.tensor(0.5)",
        "torch.as_tensor(table, dtype=torch.float32)",
        "torch.zeros(4)",
        "numpy.asarray(table)",
    ],
)
def test_a_line_that_makes_no_doubles_is_not_remarked(tmp_path, expression):
    assert lines_of(tmp_path, f"import torch\ny = {expression}\n") == []


def test_a_requested_type_is_told_from_that_of_the_data(tmp_path):
    source = """
    def load(table):
        torch.set_default_dtype(torch.float64)
        model.double()
        return torch.from_numpy(table), torch.ones(3, dtype=torch.float64)  # double
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    found = [(one.kind, one.site.line) for one in review_sources([str(file)]) if one.kind.startswith("doubles")]
    assert found == [("doubles-by-default", 3), ("doubles-asked-for", 4), ("doubles-asked-for", 5), ("doubles-made", 5)]


@pytest.mark.parametrize("source", ["x = y  # double", "print('float64')", "double = 2", "model(from_numpy)"])
def test_names_and_texts_make_no_doubles(source):
    assert not double_makers(ast.parse(source)).any
