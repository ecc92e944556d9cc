"""Which calls make what nobody reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from profkit.collect.tensors.recomputation import CallWatch
from profkit.run.directory import UnreadResult

WIDTH = 8


def unread(step: Callable[[], object]) -> tuple[UnreadResult, ...]:
    watch = CallWatch()
    watch.begin()
    try:
        step()
        watch.end_step()
    finally:
        watch.stop()
    assert watch.found is not None
    assert watch.found.unread is not None
    return watch.found.unread


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, WIDTH)


def test_a_chain_whose_end_is_thrown_away(layer, x):
    def step() -> None:
        code = layer(x)
        layer(code.relu()).sigmoid()
        code.sum().backward()

    (found,) = unread(step)
    assert found == UnreadResult(calls=(1, 2, 3), shape=(4, WIDTH))


def test_two_results_are_two_groups(layer, x):
    def step() -> None:
        layer(x).sigmoid()
        layer(x).tanh()

    assert [len(found.calls) for found in unread(step)] == [2, 2]


def test_random_numbers_are_drawn_all_the_same(layer, x):
    """What goes into them stays, too: another generator's state would follow."""

    def step() -> None:
        (torch.rand_like(layer(x)) * 2).relu()

    (found,) = unread(step)
    assert len(found.calls) == 2


def keep_in_list(made: Tensor) -> object:
    return KEPT.append(made)


KEPT: list[Tensor] = []


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(keep_in_list, id="kept"),
        pytest.param(lambda made: made.sum().item(), id="a number of it"),
        pytest.param(lambda made: made.tolist(), id="a list of it"),
        pytest.param(lambda made: np.asarray(made.detach()), id="as an array"),
        pytest.param(lambda made: str(made), id="printed"),
        pytest.param(lambda made: (made > 0).any() and None, id="a condition"),
        pytest.param(lambda made: made.T.sum().backward(), id="through a property"),
        pytest.param(lambda made: made.view(-1)[3:].sum().backward(), id="through a view"),
        pytest.param(lambda made: torch.save(made.detach(), "/dev/null"), id="saved"),
        pytest.param(lambda made: x_buffer().add_(made.detach()), id="added to something"),
    ],
)
def test_what_is_read_or_kept_is_not_told(layer, x, read):
    KEPT.clear()
    assert unread(lambda: read(layer(x))) == ()


BUFFER = torch.zeros(4, WIDTH)


def x_buffer() -> Tensor:
    return BUFFER


def test_a_layer_that_writes_statistics_is_not_told(x):
    norm = nn.BatchNorm1d(WIDTH)
    assert unread(lambda: norm(x)) == ()
