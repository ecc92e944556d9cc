"""Which products of matrices have a factor that is nearly all zeros."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from profkit.collect.tensors import sampling
from profkit.run.directory import SparseFactor
from tests.collect.tensors.watching import watched

NODES, NEIGHBOURS = 400, 4


def sparse(step: Callable[[], object]) -> tuple[SparseFactor, ...]:
    found = watched(step).sparse
    assert found is not None
    return found


def adjacency(neighbours: int = NEIGHBOURS) -> Tensor:
    made = torch.zeros(NODES, NODES)
    rows = torch.arange(NODES)
    for further in range(neighbours):
        made[rows, (rows * 7 + further * 31) % NODES] = 1
    return made


@pytest.fixture
def features() -> Tensor:
    torch.manual_seed(0)
    return torch.rand(NODES, 32)


def test_an_adjacency_on_either_side(features):
    mask = adjacency()
    (found,) = sparse(lambda: mask.mm(features))
    assert (found.call, found.shape) == (0, (NODES, NODES))
    assert found.zero == pytest.approx(1 - NEIGHBOURS / NODES, abs=1e-6)
    assert len(sparse(lambda: features.t() @ mask)) == 1


@pytest.mark.parametrize(("neighbours", "count"), [(8, 1), (9, 0)])
def test_from_98_percent_of_zeros_on(features, neighbours, count):
    mask = adjacency(neighbours)
    assert len(sparse(lambda: mask @ features)) == count


def test_one_hot_rows_pick_those_of_the_other_factor(features):
    mask = adjacency(1)
    (found,) = sparse(lambda: mask @ features)
    assert found.picks
    assert found.shape == (NODES, NODES)


def test_one_number_in_each_row_that_is_not_1_scales_what_it_picks(features):
    """Nor do rows of zeros pick anything, nor a factor on the right."""
    mask, empty = adjacency(1), adjacency(1)
    empty[::4] = 0
    assert sparse(lambda: (mask * 0.5) @ features) == ()
    assert sparse(lambda: empty @ features) == ()
    assert sparse(lambda: features.t() @ mask) == ()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_layer_begins_with_such_a_product(kind):
    vectors = torch.zeros(200, NODES).scatter_(1, torch.arange(200)[:, None], 1)
    layer = kind(NODES, 8)
    (found,) = sparse(lambda: layer(vectors.unsqueeze(0)))
    assert (found.picks, found.shape) == (True, (1, 200, NODES))
    assert sparse(lambda: layer(adjacency()[:200].unsqueeze(0))) == ()


def test_what_has_gradients_or_is_small_is_left_out(features):
    mask, small = adjacency().requires_grad_(), adjacency()[:100, :100]
    assert sparse(lambda: mask @ features) == ()
    assert sparse(lambda: small @ features[:100]) == ()


def test_of_a_layer_the_input_counts_and_not_its_weights():
    words, layer = adjacency(), nn.Linear(NODES, 8)
    dense, pruned = torch.rand(NODES, NODES), nn.Linear(NODES, NODES).requires_grad_(requires_grad=False)
    pruned.weight.copy_(words)
    assert len(sparse(lambda: layer(words))) == 1
    assert sparse(lambda: pruned(dense)) == ()


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.ReLU(inplace=True), nn.Threshold(0.0, 0.0)], ids=["relu", "in place", "threshold"]
)
def test_which_numbers_of_an_activation_are_zero_is_known_too_late(features, activation):
    mask = adjacency()
    assert sparse(lambda: activation(mask - 0.5) @ features) == ()
    assert len(sparse(lambda: (mask * mask) @ features)) == 1


def test_a_pattern_of_rows_does_not_hide_the_full_ones(features):
    """Of 127 rows every other one is full, and 64 are read: not those alone."""
    mixed = torch.zeros(127, 1024)
    mixed[::2, :4] = 1
    mixed[1::2] = 1
    assert sparse(lambda: mixed @ torch.ones(1024, 8)) == ()


@pytest.mark.parametrize(("neighbours", "count"), [(1, 1), (20, 1), (21, 0)])
def test_of_a_sparse_tensor_made_dense_95_percent_and_single_numbers_do(features, neighbours, count):
    mask = adjacency(neighbours).to_sparse()
    found = sparse(lambda: mask.to_dense() @ features)
    assert len(found) == count
    assert all(one.was_sparse for one in found)


def test_a_mask_that_was_dense_all_along_was_not_sparse(features):
    mask, other = adjacency(), adjacency().to_sparse()
    found = sparse(lambda: (mask @ features, other.to_dense()))
    assert [one.was_sparse for one in found] == [False]


@pytest.fixture
def sampled(monkeypatch):
    """Calls are passed by from the third one at a site on."""
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    monkeypatch.setattr(sampling, "SITE_LOOKS", 2)


@pytest.mark.usefixtures("sampled")
def test_of_many_calls_a_factor_that_was_seen_to_be_made_still_counts(features):
    def step() -> None:
        for number in range(40):
            features.add(number)
        (adjacency() / NEIGHBOURS) @ features

    assert len(sparse(step)) == 1


@pytest.mark.usefixtures("sampled")
def test_a_factor_of_unknown_origin_may_come_from_an_activation(features):
    """Both the activation and its view are called at the same places as often before."""

    def step() -> None:
        for number in range(5):
            made = (adjacency() - 0.5 + number * 0).relu()
            turned = made.t()
        turned @ features

    assert watched(step).sparse is None
