"""Which calls make what nobody reads."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from profkit.collect.tensors import unread as unread_results
from profkit.run.directory import UnreadResult
from tests.collect.tensors.watching import watched

WIDTH = 8


def unread(step: Callable[[], object]) -> tuple[UnreadResult, ...] | None:
    return watched(step).unread


@pytest.fixture(autouse=True)
def without_threads_of_other_tests(monkeypatch):
    known = ("QueueFeederThread", threading.current_thread().name)  # a test below tells the first ones apart
    others = [thread.name for thread in threading.enumerate() if thread.name not in known]
    monkeypatch.setattr(unread_results, "_QUIET_THREADS", (*unread_results._QUIET_THREADS, *others))


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


class Stepped(torch.autograd.Function):
    """A step function, and a slope of its own for the backward pass."""

    @staticmethod
    def forward(ctx, x, is_kept):
        slope = (x * 3).sigmoid()
        if is_kept:
            ctx.save_for_backward(slope)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.saved_tensors[0] if ctx.saved_tensors else grad), None


@pytest.mark.parametrize(("is_kept", "count"), [(True, 0), (False, 1)])
def test_what_a_function_keeps_for_its_backward_pass(layer, x, is_kept, count):
    found = unread(lambda: Stepped.apply(layer(x), is_kept).sum().backward())
    assert found is not None
    assert len(found) == count


def test_what_the_hook_of_a_gradient_reads(layer, x):
    def step() -> None:
        made = layer(x)
        weight = made.detach().abs().neg().exp()
        made.register_hook(lambda grad: grad * weight)
        made.relu().sum().backward()

    assert unread(step) == ()


def test_another_thread_may_read_anything(layer, x):
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="a reader")
    thread.start()
    try:
        assert unread(lambda: layer(x).sigmoid()) is None
    finally:
        over.set()
        thread.join()
    assert unread(lambda: layer(x).sigmoid()) != ()


def test_the_thread_that_feeds_a_loaders_workers_reads_only_indices(layer, x):
    loader = DataLoader(TensorDataset(torch.rand(32, WIDTH)), batch_size=4, num_workers=1)
    batches = iter(loader)
    next(batches)
    assert any(thread.name == "QueueFeederThread" for thread in threading.enumerate())
    (found,) = unread(lambda: layer(x).sigmoid())
    assert found.shape == (4, WIDTH)


def test_the_thread_of_a_queue_of_the_programs_own_may_send_a_result(layer, x):
    queue = multiprocessing.Queue()
    queue.put(1)
    try:
        assert unread(lambda: layer(x).sigmoid()) is None
    finally:
        queue.get()
        queue.close()
        queue.join_thread()
