"""Which call made what another one takes, by memory: what real calls of PyTorch leave in the record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from profkit.collect.tensors import recomputation, sampling
from profkit.patterns.flow.data_flow import longest_chain
from profkit.run.directory import DataFlow, JoinedCopies
from tests.collect.tensors.watching import watch_of

X = torch.ones(4, 3)


@pytest.fixture(autouse=True)
def _what_other_tests_left_keeps_nothing_from_being_watched(monkeypatch) -> None:
    """Compiled code, or attention layers that are not collected yet."""
    monkeypatch.setattr(recomputation, "_is_unnoticed", lambda: True)


def followed(step: Callable[[], object]) -> DataFlow:
    flow = watch_of(step).flow
    assert flow is not None
    return flow


def test_a_call_names_the_makers_of_what_it_takes_and_numbers_memory_that_was_there():
    weight = torch.ones(3, 3)

    def step() -> None:
        hidden = X @ weight
        torch.relu(hidden)
        hidden @ weight

    assert followed(step) == DataFlow(takes=((-1, -2), (0,), (0, -2)))


def test_a_view_is_what_it_shows_and_the_attribute_of_a_tensor_is_no_way_out():
    def step() -> None:
        made = torch.exp(X)
        part = made[1:3]
        torch.relu(part.T)

    assert followed(step).takes == ((-1,), (0,), (0,))


def test_who_writes_last_is_the_maker():
    def step() -> None:
        table = torch.zeros(4, 3)
        table[0] = X[0].exp()
        table.sum()

    made, read, value, wrote, summed = followed(step).takes
    assert (made, read, value) == ((), (-1,), (-1,))
    assert wrote == (0, 2)
    assert summed == (3,)


def test_what_the_backward_pass_makes_or_writes_is_its_own():
    layer = nn.Linear(3, 1)

    def step() -> None:
        layer(X).sum().backward()
        layer.weight.grad.exp()

    flow = followed(step)
    product, total, backward, used = flow.takes
    assert (product, total, backward, used) == ((-1, -2, -3), (0,), (1,), (2,))
    assert (flow.unmarked, flow.backward) == ((2,), (2,))


def test_gradients_that_are_returned_come_from_their_call_and_end_nothing():
    weight = torch.ones(3, 3, requires_grad=True)

    def step() -> None:
        (found,) = torch.autograd.grad((X @ weight).sum(), [weight])
        X @ (weight - found)

    flow = followed(step)
    assert flow.takes == ((-1, -2), (0,), (1, -2), (-2, 2), (-1, 3))
    assert flow.backward == ()


def test_numbers_that_python_reads_are_noted_and_printing_is_not():
    def step() -> None:
        str(X.sum())
        X.sum().item()

    flow = followed(step)
    assert [flow.takes[number] for number in flow.reads] == [(flow.reads[-1] - 1,)]


def test_statistics_of_a_batch_norm_tie_no_calls_together():
    layer = nn.BatchNorm1d(3)
    flow = followed(lambda: [layer(X), layer(X + 1)])
    normalised = [n for n, taken in enumerate(flow.takes) if len(taken) > 3]
    assert longest_chain(flow, {n: turn for turn, n in enumerate(normalised)}, frozenset(normalised)) == 1


def test_tensors_without_memory_of_their_own_are_a_gap():
    wave = torch.ones(4, dtype=torch.complex64)
    assert followed(lambda: [X.exp(), wave.abs()]).gaps == (1,)


def test_after_a_call_that_is_passed_by_nothing_is_known(monkeypatch):
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    given = [torch.full((2,), float(number)) for number in range(3 * sampling.SITE_LOOKS)]
    flow = followed(lambda: [tensor.exp() for tensor in given])
    assert len(flow.takes) == sampling.SITE_LOOKS


def test_a_recurrence_is_one_chain_and_rows_on_their_own_are_none():
    layer = nn.Linear(3, 3)

    def recurring() -> None:
        state = X
        for _ in range(5):
            state = torch.tanh(layer(state))

    def alone() -> None:
        total = torch.zeros(())
        for row in X:
            total += functional.linear(row, layer.weight).sum()

    for step, length in ((recurring, 5), (alone, 1)):
        flow = followed(step)
        products = [n for n, taken in enumerate(flow.takes) if len(taken) > 1 and taken[1] < 0]
        rounds = {n: turn for turn, n in enumerate(products)}
        assert longest_chain(flow, rounds, frozenset(products)) == length


@pytest.mark.parametrize("times", [2, 200])
def test_a_list_of_one_tensor_or_of_equal_views_of_one_is_noted(times: int):
    def step() -> None:
        torch.stack([X] * times, dim=1)
        torch.cat([X[None] for _ in range(times)])

    flow = followed(step)
    assert flow.copies == (JoinedCopies(0, (4, 3), times, 4), JoinedCopies(times + 1, (1, 4, 3), times, 4))
    assert 0 not in flow.unmarked


def test_a_list_of_other_tensors_or_of_other_parts_of_one_is_no_list_of_copies():
    def step() -> None:
        torch.stack([X, X.clone()])
        torch.stack([X[0], X[1]])
        torch.stack([X, X, X.double().float()])
        torch.cat([X])
        torch.add(X, X)

    assert followed(step).copies == ()
