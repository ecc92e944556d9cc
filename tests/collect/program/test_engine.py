"""The autograd engine: backward passes, how large one will be, and recordings of optimizers that step inside one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from profkit.collect.program.engine import EVENTS_PER_NODE, in_backward_pass, is_larger, node_of
from profkit.collect.recorder.profiler import profile
from profkit.run.directory import load_run
from tests.collect.reading import read_events


def test_hooks_and_recomputed_activations_are_in_the_backward_pass():
    known: list[bool] = []

    def layer(x: Tensor) -> Tensor:
        known.append(in_backward_pass())
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: known.append(in_backward_pass()))
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert known == [False, True, True]
    assert not in_backward_pass()


def test_optimizers_that_step_in_hooks_end_no_step(tmp_path):
    model = nn.Linear(8, 8)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda ready: optimizers[ready].step())
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            model(torch.ones(4, 8)).sum().backward()
            recording.step()
    run = load_run(tmp_path)
    assert (run.step_signal, run.notes) == ("step()", ())
    assert "AddmmBackward0" in {event["name"] for event in read_events(tmp_path)}


def parts_of_a_base_written_to() -> tuple[Tensor, ...]:
    """Like FSDP's parameters, which are views of one flat tensor."""
    base = torch.ones(4, requires_grad=True) * 1
    parts = base.split(2)
    base.mul_(2)
    return parts


def test_a_view_whose_node_raises_has_none():
    (part, _) = parts_of_a_base_written_to()
    with pytest.raises(RuntimeError, match="modified inplace"):
        part.grad_fn  # noqa: B018  # it is the access that raises
    assert node_of(part) is None
    assert node_of(torch.ones(2, requires_grad=True) * 1) is not None


def test_names_of_such_views_do_not_end_a_recording(tmp_path):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(tmp_path, wait=1, warmup=1, active=2) as recording:
        for _ in range(6):
            model.kept = parts_of_a_base_written_to()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            recording.step()
    assert load_run(tmp_path).notes == ()
    assert "AddmmBackward0" in {event["name"] for event in read_events(tmp_path)}


NODES = 12
"""Ten multiplications, the accumulation into the leaf, and the sum."""


def unrolled(steps: int) -> Tensor:
    state = leaf = torch.ones(2, requires_grad=True)
    for _ in range(steps):
        state = state * 2
    assert leaf.grad is None
    return state.sum()


@pytest.mark.parametrize(("nodes", "larger"), [(NODES, False), (NODES - 1, True), (0, True)])
def test_the_size_of_a_backward_pass_is_counted_in_events_per_node(nodes, larger):
    assert is_larger(unrolled(10), nodes * EVENTS_PER_NODE) is larger


def test_nodes_that_two_roots_share_count_once():
    state = unrolled(10)
    roots = [state, state * 3]
    assert is_larger(roots, NODES * EVENTS_PER_NODE)
    assert not is_larger(roots, (NODES + 1) * EVENTS_PER_NODE)


def test_an_edge_of_the_graph_is_a_root_too():
    assert is_larger(get_gradient_edge(unrolled(10)), (NODES - 1) * EVENTS_PER_NODE)


@pytest.mark.parametrize("roots", [torch.ones(2), (), None, [None], "no tensor"])
def test_without_a_graph_nothing_is_large(roots):
    assert not is_larger(roots, 0)


def test_counting_leaves_the_graph_intact():
    leaf = torch.ones(2, requires_grad=True)
    loss = (leaf * leaf).sum()
    is_larger(loss, 10**6)
    loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0, 2.0]
