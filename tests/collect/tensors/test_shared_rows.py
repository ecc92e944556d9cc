"""Which layers are given rows that went through the same weights earlier in the step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from profkit.collect.tensors import call_budget, sampling
from profkit.collect.tensors.shared_rows import row_prints
from profkit.run.directory import SharedRows
from tests.collect.tensors.watching import watched

ROWS, WIDTH = 64, 256


def shared(step: Callable[[], object]) -> tuple[SharedRows, ...]:
    found = watched(step).rows
    assert found is not None
    return found


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH)


@pytest.fixture
def x(layer: nn.Linear) -> Tensor:
    return torch.rand(ROWS + 1, WIDTH)


def test_rows_of_two_batches_that_overlap(layer, x):
    now, following = x[:-1].clone(), x[1:].clone()
    assert shared(lambda: (layer(now), layer(following))) == (SharedRows(1, 0, ROWS, (ROWS - 1) / ROWS),)


def test_of_many_calls_rows_that_were_seen_twice_still_count(layer, x, monkeypatch):
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    monkeypatch.setattr(sampling, "SITE_LOOKS", 2)
    now, following = x[:-1].clone(), x[1:].clone()

    def step() -> None:
        layer(now)
        for number in range(40):
            now.add(number)
        layer(following)

    assert len(shared(step)) == 1
    assert watched(lambda: [now.add(number) for number in range(40)]).rows is None


def test_what_was_seen_before_the_budget_ended_is_kept(layer, x, monkeypatch):
    monkeypatch.setattr(call_budget, "MOST_CALLS", 4)
    now, following = x[:-1].clone(), x[1:].clone()
    assert len(shared(lambda: (layer(now), layer(following), *(now.add(number) for number in range(5))))) == 1


def test_views_of_one_tensor_overlap_too(layer, x):
    (found,) = shared(lambda: (layer(x[:-1]), layer(x[1:])))
    assert found.again == (ROWS - 1) / ROWS


def test_each_layer_behind_the_first_counts_until_a_batch_mixes_its_rows(x):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    mixed = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH))
    now, following = x[:-1].clone(), x[1:].clone()
    assert len(shared(lambda: (plain(now), plain(following)))) == 2
    assert len(shared(lambda: (mixed(now), mixed(following)))) == 1


def test_pictures_are_whole_rows_of_a_convolution():
    torch.manual_seed(0)
    layer, frames = nn.Conv2d(3, 4, 3), torch.rand(9, 3, 40, 40)
    (found,) = shared(lambda: (layer(frames[:-1].clone()), layer(frames[1:].clone())))
    assert (found.rows, found.again) == (8, 7 / 8)


@pytest.mark.parametrize(("rows_in_common", "is_found"), [(20, True), (19, False)])
def test_from_three_tenths_on_it_is_kept(layer, x, rows_in_common, is_found):
    other = torch.rand(ROWS, WIDTH)
    other[:rows_in_common] = x[:rows_in_common]
    assert bool(shared(lambda: (layer(x[:ROWS]), layer(other)))) == is_found


def test_the_very_same_tensor_is_no_other_batch(layer, x):
    assert shared(lambda: (layer(x), layer(x))) == ()


def test_other_weights_or_weights_that_were_written_to_differ(layer, x):
    other, again = nn.Linear(WIDTH, WIDTH), x.clone()

    def updated() -> None:
        layer(x)
        with torch.no_grad():
            layer.weight.mul_(0.5)
        layer(again)

    assert shared(lambda: (layer(x), other(again))) == ()
    assert shared(updated) == ()


def test_a_backward_pass_in_between_has_freed_the_graph(layer, x):
    def step() -> None:
        layer(x).sum().backward()
        layer(x.clone()).sum().backward()

    assert shared(step) == ()


@pytest.mark.parametrize(
    "batch",
    [torch.zeros(ROWS, WIDTH), torch.rand(1, WIDTH).repeat(ROWS, 1), torch.rand(15, WIDTH)],
    ids=["zeros", "one row again and again", "few numbers"],
)
def test_padding_and_small_batches_are_left_out(layer, batch):
    assert shared(lambda: (layer(batch), layer(batch.clone()))) == ()


def test_of_long_rows_some_numbers_are_read_and_sparse_ones_tell_nothing():
    rows = np.random.default_rng(1).integers(1, 1 << 30, (10, 9000)).astype(np.uint32)
    sparse = np.where(np.arange(9000) % 900 == 0, rows, 0).astype(np.uint32)
    found, again = row_prints(rows, 1, 64), row_prints(rows[::-1].copy(), 1, 64)
    assert found is not None
    assert len(found) == 10
    assert again is not None
    assert (found == again).all()
    assert row_prints(sparse, 1, 64) is None
