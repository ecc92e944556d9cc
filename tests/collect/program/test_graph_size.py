"""How large a backward pass is going to be, told before it begins."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from profkit.collect.program.engine import EVENTS_PER_NODE, is_larger

NODES = 12
"""Ten multiplications, the leaf's accumulation and the sum."""


def unrolled(steps: int) -> Tensor:
    state = leaf = torch.ones(2, requires_grad=True)
    for _ in range(steps):
        state = state * 2
    assert leaf.grad is None
    return state.sum()


@pytest.mark.parametrize(("nodes", "larger"), [(NODES, False), (NODES - 1, True), (0, True)])
def test_each_node_leaves_its_events(nodes: int, larger: bool) -> None:
    assert is_larger(unrolled(10), nodes * EVENTS_PER_NODE) is larger


def test_what_two_roots_share_is_gone_through_once() -> None:
    state = unrolled(10)
    roots = [state, state * 3]
    assert is_larger(roots, NODES * EVENTS_PER_NODE)
    assert not is_larger(roots, (NODES + 1) * EVENTS_PER_NODE)


def test_an_edge_of_the_graph_is_a_root_too() -> None:
    assert is_larger(get_gradient_edge(unrolled(10)), (NODES - 1) * EVENTS_PER_NODE)


@pytest.mark.parametrize("roots", [torch.ones(2), (), None, [None], "no tensor"])
def test_where_there_is_no_graph_nothing_is_large(roots: object) -> None:
    assert not is_larger(roots, 0)


def test_the_graph_is_left_as_it_was() -> None:
    leaf = torch.ones(2, requires_grad=True)
    loss = (leaf * leaf).sum()
    is_larger(loss, 10**6)
    loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0, 2.0]
