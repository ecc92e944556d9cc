"""What is seen of the matrices that products and decompositions take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from profkit.run.directory import Form, MatrixForm
from tests.collect.tensors.watching import watched

SIZE = 40


def forms(step) -> list[MatrixForm]:
    found = watched(step).forms
    assert found is not None
    return list(found)


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.rand(SIZE, 8)


def full() -> Tensor:
    made = torch.rand(SIZE, SIZE)
    return made @ made.T + torch.eye(SIZE)


@pytest.mark.parametrize(
    ("matrix", "form"),
    [
        (torch.diag(torch.rand(SIZE) + 1), Form.DIAGONAL),
        (torch.eye(SIZE) - 1 / SIZE, Form.CENTRING),
        (torch.ones(SIZE, SIZE), Form.CENTRING),
        (torch.ones(SIZE, SIZE).tril(), Form.ADDING_UP),
        (torch.ones(SIZE, SIZE).triu() / torch.arange(1, SIZE + 1)[:, None], Form.ADDING_UP),
        (torch.ones(SIZE, SIZE).tril(-1), Form.NONE),
        (torch.ones(SIZE, SIZE).tril(1), Form.NONE),
        (torch.zeros(SIZE, SIZE), Form.NONE),
        (torch.rand(SIZE, SIZE), Form.NONE),
        (torch.rand(SIZE, SIZE).tril(), Form.NONE),
    ],
)
def test_the_form_of_a_factor_on_either_side(x, matrix, form):
    assert [one.form for one in forms(lambda: (matrix @ x, x.T.mm(matrix)))] == [form, form]


def test_one_number_beside_the_diagonal_makes_it_full(x):
    """Rows are read at random: of 40 rows all are."""
    matrix = torch.diag(torch.rand(SIZE) + 1)
    matrix[20, 3] = 1
    assert [one.form for one in forms(lambda: matrix @ x)] == [Form.NONE]


@pytest.mark.parametrize(("size", "form"), [(16, Form.DIAGONAL), (15, Form.NONE)])
def test_small_products_are_passed_by_and_small_decompositions_are_not(size, form):
    matrix = torch.diag(torch.rand(size) + 1)
    seen = forms(lambda: (matrix @ torch.rand(size, 4), torch.linalg.cholesky(matrix)))
    assert [one.form for one in seen] == [form, Form.DIAGONAL]


def test_a_batch_of_variances_of_one_number_is_diagonal():
    """As a policy with a single action has: its covariance is one by one."""
    batch = torch.rand(64, 1, 1) + 1
    assert [one.form for one in forms(lambda: torch.linalg.cholesky(batch))] == [Form.DIAGONAL]


def test_what_depends_on_parameters_counts_only_if_it_is_a_diagonal(x):
    spread = torch.rand(SIZE).add(1).requires_grad_()
    identity = torch.nn.Parameter(torch.eye(SIZE))
    seen = forms(lambda: (torch.diag(spread) @ x, identity @ x, torch.ones(SIZE, SIZE).mul(spread.sum()) @ x))
    assert [one.form for one in seen] == [Form.DIAGONAL, Form.NONE, Form.NONE]


def test_equal_matrices_of_a_batch(x):
    batch, varied = full().expand(6, SIZE, SIZE).clone(), full().repeat(6, 1, 1)
    varied[3] += torch.eye(SIZE)
    weight = torch.nn.Parameter(full())
    seen = forms(lambda: (torch.linalg.inv(batch), torch.linalg.inv(varied)))
    assert [one.form for one in seen] == [Form.EQUAL, Form.NONE]
    seen = forms(lambda: (batch @ batch, batch @ varied, weight @ batch, weight @ varied))
    assert [one.form for one in seen] == [Form.EQUAL, Form.NONE, Form.EQUAL, Form.NONE]
    assert {one.shape for one in seen} == {(6, SIZE, SIZE)}
    assert [one.form for one in forms(lambda: torch.linalg.inv(batch[:3]))] == [Form.NONE]


def test_other_numbers_and_operators_are_not_looked_at(x):
    matrix = torch.eye(SIZE)
    assert forms(lambda: (matrix.to(torch.bfloat16) @ x.to(torch.bfloat16), matrix.mul(2), matrix[0] @ x)) == []


def window(*shape: int) -> Tensor:
    """The same Gaussian window for each channel."""
    channels, _, high, wide = shape
    column, row = (torch.exp(-((torch.arange(size) - size // 2) ** 2) / 9.0) for size in (high, wide))
    return (column[:, None] * row / column.sum() / row.sum()).expand(channels, 1, high, wide)


@pytest.mark.parametrize(
    ("kernel", "form"),
    [
        (window(3, 1, 11, 11), Form.SEPARABLE),
        (torch.ones(3, 1, 5, 7) / 35, Form.SEPARABLE),
        (window(3, 1, 11, 11) + torch.eye(11) / 1000, Form.NONE),
        (torch.rand(3, 1, 11, 11), Form.NONE),
        (torch.zeros(3, 1, 11, 11), Form.NONE),
        (torch.full((3, 1, 11, 11), torch.inf), Form.NONE),
    ],
)
def test_the_kernels_of_a_convolution_of_single_channels(kernel, form):
    x = torch.rand(2, 3, 20, 20)
    (found,) = forms(lambda: functional.conv2d(x, kernel, groups=3))
    assert (found.form, found.shape) == (form, tuple(kernel.shape))


def test_kernels_that_learn_mix_channels_or_are_short_are_not_looked_at():
    x = torch.rand(2, 3, 20, 20)
    learning, mixing, short = window(3, 1, 11, 11).clone().requires_grad_(), torch.ones(3, 3, 9, 9), window(3, 1, 3, 3)
    assert (
        forms(
            lambda: (
                functional.conv2d(x, learning, groups=3),
                functional.conv2d(x, mixing),
                functional.conv2d(x, short, groups=3),
            )
        )
        == []
    )
