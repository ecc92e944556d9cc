"""Which results are multiplied by zeros, and which calls made them for nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from profkit.collect.tensors.zeroed import measure_zeros
from profkit.run.directory import ZeroedResult
from tests.collect.tensors.watching import watched

ROWS, WIDTH = 40, 16


def zeroed(step: Callable[[], object]) -> tuple[ZeroedResult, ...]:
    found = watched(step).zeroed
    assert found is not None
    return found


def few(*shape: int, every: int = 5) -> Tensor:
    """One number in so many is 1, the others are 0."""
    count = int(np.prod(shape))
    return ((torch.arange(count) % every) == 2).float().view(shape)


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(ROWS, WIDTH)


def test_a_layer_whose_rows_are_masked(layer, x):
    mask = few(ROWS, 1)
    (found,) = zeroed(lambda: layer(x).relu() * mask)
    assert found == ZeroedResult(call=2, makers=(0, 1), rows=ROWS, zero=0.8)


def test_stacked_experts_of_which_a_gate_chooses_one(x):
    experts = [nn.Linear(WIDTH, WIDTH) for _ in range(5)]
    gates = functional.one_hot(torch.arange(ROWS) * 3 % 5, 5).float()
    (found,) = zeroed(lambda: gates.unsqueeze(-1) * torch.stack([expert(x) for expert in experts], 1))
    assert len(found.makers) == 6
    assert (found.rows, found.zero) == (5 * ROWS, pytest.approx(0.8))


def test_a_loss_of_few_positions(layer, x):
    mask, targets = few(ROWS), torch.zeros(ROWS, dtype=torch.long)
    (found,) = zeroed(lambda: functional.cross_entropy(layer(x), targets, reduction="none") * mask)
    assert len(found.makers) == 2


def targets(*shape: int, every: int = 5, ignored: int = -100) -> Tensor:
    """One target in so many counts."""
    return torch.where(few(*shape, every=every).bool(), 3, ignored)


def test_a_loss_that_ignores_most_rows_makes_them_and_itself_for_little(layer):
    x, wanted = torch.rand(8, ROWS, WIDTH), targets(8, ROWS)
    (found,) = zeroed(lambda: functional.cross_entropy(layer(x).relu().view(-1, WIDTH), wanted.view(-1)))
    assert found == ZeroedResult(call=4, makers=(0, 1, 2, 4), rows=8 * ROWS, zero=0.8, ignored=True)


def test_where_the_classes_are_moved_for_the_loss_the_layer_is_found_all_the_same(layer):
    x, wanted = torch.rand(8, ROWS, WIDTH), targets(8, ROWS, ignored=0)
    (found,) = zeroed(lambda: functional.cross_entropy(layer(x).transpose(1, 2), wanted, ignore_index=0))
    assert (found.makers, found.ignored) == ((0, 1, 2), True)


def test_before_a_residual_connection_other_rows_are_needed(layer):
    x, head = torch.rand(8, ROWS, WIDTH), nn.Linear(WIDTH, WIDTH)
    (found,) = zeroed(
        lambda: functional.cross_entropy(head((y := x.exp()) + layer(y)).view(-1, WIDTH), targets(8, ROWS).view(-1))
    )
    assert len(found.makers) == 3  # the head, its view and the loss


@pytest.mark.parametrize(
    "wanted",
    [
        targets(8, ROWS, every=2),  # a half
        torch.full((8, ROWS), 3),
        torch.where(torch.arange(ROWS).expand(8, -1) < 9, 3, -100),  # padding
    ],
)
def test_losses_that_need_most_rows_or_ignore_padding_are_silent(layer, wanted):
    x = torch.rand(8, ROWS, WIDTH)
    assert zeroed(lambda: functional.cross_entropy(layer(x).transpose(1, 2), wanted)) == ()


@pytest.mark.parametrize(("rows", "is_found"), [(63, False), (64, True)])
def test_few_targets_are_not_looked_at(layer, rows, is_found):
    x = torch.rand(rows, WIDTH)
    assert bool(zeroed(lambda: functional.cross_entropy(layer(x), targets(rows)))) == is_found


def test_rows_that_a_metric_reads_too_are_needed(layer):
    x, wanted = torch.rand(8 * ROWS, WIDTH), targets(8 * ROWS)

    def with_accuracy() -> Tensor:
        scores = layer(x)
        right = (scores.argmax(-1) == wanted).sum()
        return functional.cross_entropy(scores, wanted) * right

    assert zeroed(with_accuracy) == ()


def test_a_question_at_the_beginning_of_each_row_is_no_padding(layer):
    x, wanted = torch.rand(8, ROWS, WIDTH), torch.where(torch.arange(ROWS).expand(8, -1) < 30, -100, 3)
    (found,) = zeroed(lambda: functional.cross_entropy(layer(x).transpose(1, 2), wanted))
    assert found.zero == 0.75


@pytest.mark.parametrize(
    "weights",
    [
        few(ROWS, WIDTH),  # within rows, as dropout
        few(ROWS, 1, every=2),  # a half
        (torch.arange(ROWS) < 5).float()[:, None],  # at one end, as padding
        torch.zeros(ROWS, 1),  # all: a switch that is off
        torch.full((ROWS, 1), 1e-6),  # soft
    ],
)
def test_other_weights_are_silent(layer, x, weights):
    assert zeroed(lambda: layer(x) * weights) == ()


def test_results_that_something_else_takes_are_silent(layer, x):
    def by_its_own_values() -> Tensor:
        y = layer(x)
        best = y.sum(1).topk(4).values.min()
        return y * (y.sum(1) >= best).float()[:, None]

    assert zeroed(by_its_own_values) == ()


def test_work_across_rows_ends_the_chain(layer, x):
    mask = few(ROWS, 1)
    (found,) = zeroed(lambda: layer(functional.softmax(layer(x), 0)) * mask)
    assert len(found.makers) == 1


def test_the_right_factor_of_a_product_is_needed_whole(layer, x):
    mask, edges = few(ROWS, 1), torch.rand(ROWS, ROWS)
    (found,) = zeroed(lambda: (edges.exp() @ layer(x)) * mask)
    assert found.makers == (0, 2)


def test_what_all_rows_share_is_needed_whole(x):
    mask = few(ROWS, 1, 1)
    (found,) = zeroed(lambda: (x[:, None].exp() - x.exp().unsqueeze(0)) * mask)
    assert len(found.makers) == 2


@pytest.mark.parametrize(("rows", "kept", "is_found"), [(48, 0.1, False), (4000, 0.3, False), (4000, 0.1, True)])
def test_weights_that_are_drawn_may_drop_paths(layer, rows, kept, is_found):
    x = torch.rand(rows, WIDTH)
    assert bool(zeroed(lambda: layer(x) * (torch.rand(rows, 1) < kept))) == is_found


def test_a_tensor_that_was_there_is_silent(x):
    assert zeroed(lambda: x * few(ROWS, 1)) == ()


@pytest.mark.parametrize(("zeros", "is_found"), [(5, False), (6, True)])
def test_from_three_fifths_of_the_rows_on(zeros, is_found):
    zero = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1, zeros == 6], dtype=bool)
    assert (measure_zeros(zero, (10,)) is not None) == is_found


@pytest.mark.parametrize(("rows", "is_found"), [(7, False), (8, True)])
def test_from_eight_rows_on(rows, is_found):
    zero = np.arange(rows) != 2
    assert (measure_zeros(zero[:, None], (rows, 64)) is not None) == is_found


def test_weights_of_another_shape_are_not_looked_at():
    assert measure_zeros(np.ones((9, 3), dtype=bool), (9, 4)) is None
