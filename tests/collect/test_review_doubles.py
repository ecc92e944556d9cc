"""Where data may become float64: the likeliest line first."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profkit.source.remarks import review_sources


def lines_of(tmp_path: Path, source: str) -> list[int]:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    return [remark.site.line for remark in review_sources([str(file)]) if remark.kind == "doubles-made"]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.from_numpy(table)",
        "torch.as_tensor(table, device=device)",
        "torch.tensor(table.values)",
        "torch.zeros(4, dtype=torch.float64)",
        "torch.linspace(0, 1, 9, dtype=torch.double)",
        "torch.from_numpy(table).reshape(-1, 4)",
        "x.double()",
        "x.to(torch.float64)",
        "torch.set_default_dtype(torch.float64)",
    ],
)
def test_a_line_that_may_make_doubles_is_remarked(tmp_path: Path, expression: str) -> None:
    assert lines_of(tmp_path, f"import torch\ny = {expression}\n") == [2]


@pytest.mark.parametrize(
    "expression",
    [
        "0.5 * (1 + torch.erf(torch.from_numpy(table) / 2).numpy())",
        "model(torch.as_tensor(table)).mean().item()",
        "torch.from_numpy(table).float()",
        "torch.from_numpy(table)[1:].to(x.dtype)",
        "torch.from_numpy(table.astype(np.float32))",
        "torch.from_numpy(labels.astype(np.int64))",
        "torch.tensor([1.0, 2.0])",
        "torch.tensor(0.5)",
        "torch.as_tensor(table, dtype=torch.float32)",
        "torch.zeros(4)",
        "numpy.asarray(table)",
    ],
)
def test_what_makes_none_is_not_remarked(tmp_path: Path, expression: str) -> None:
    assert lines_of(tmp_path, f"import torch\ny = {expression}\n") == []


def test_integers_of_numpys_generators_are_none(tmp_path: Path) -> None:
    source = """
    def draw(rng, n):
        user = rng.integers(0, 100, n)
        item = (user * 7 + rng.geometric(0.02, n)) % 50
        share, score = user / n, rng.normal(size=n)
        return torch.from_numpy(user), torch.from_numpy(item)

    def floats(rng, n):
        rank = rng.integers(0, 100, n)
        share = rank / n
        a = torch.from_numpy(share)
        b = torch.from_numpy(rank * 0.5)
        c = torch.from_numpy(numpy.sqrt(rank))
        return a, b, c
    """
    assert lines_of(tmp_path, source) == [11, 12, 13]


def test_a_name_that_is_given_other_numbers_too_may_hold_doubles(tmp_path: Path) -> None:
    source = """
    x = rng.integers(0, 100, n)
    x = x / 100
    y = torch.from_numpy(x)
    """
    assert lines_of(tmp_path, source) == [4]


def test_what_takes_the_type_of_the_data_comes_before_conversions_of_what_is_there(tmp_path: Path) -> None:
    source = """
    def load(table):
        model.double()
        return torch.from_numpy(table), torch.ones(3, dtype=torch.float64)
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    found = [remark for remark in review_sources([str(file)]) if remark.kind == "doubles-made"]
    assert [(remark.site.function, remark.site.line) for remark in found] == [("load", 4), ("load", 3)]
