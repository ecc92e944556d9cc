"""Nodes that know their parent keep each tree's tensors until the garbage collector happens to run.

A parent holds its children and each child its parent, so no reference count in the tree ever reaches zero. The
collector frees such cycles, but it runs after a number of new Python objects, regardless of the memory that their
tensors hold. A few small nodes hold megabytes, so the trees of several steps are alive at once. A weak reference to the
parent frees each tree with its root.

Source: Python documentation, gc and weakref; PyTorch blog, "Understanding GPU Memory 2: Finding and Removing Reference
Cycles".
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

triggers = ("reference-cycle",)
effect = "memory"


class Node:
    def __init__(self, value: Tensor, parent: Any = None) -> None:
        self.value = value
        self.parent = parent
        self.children: list[Node] = []


@dataclass(frozen=True)
class State:
    inputs: list[Tensor]
    weight: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State([torch.randn(160, 256, device=device) for _ in range(32)], torch.randn(256, 256, device=device) / 16)


def grow(root: Node, weight: Tensor, refer: Callable[[Node], Any]) -> Tensor:
    """Expand the tree breadth first, two children a node, and add up the maxima of its leaves. Each child needs the one
    before, so that a level is no batch."""
    level, before = [root], root.value.mean()
    for _ in range(5):
        for node in level:
            for sign in (1.0, -1.0):
                value = torch.tanh((sign * node.value) @ weight + before)  # expect: reference-cycle
                node.children.append(Node(value, refer(node)))
                before = value.mean()
        level = [child for node in level for child in node.children]
    return torch.stack([leaf.value.amax() for leaf in level]).sum()


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.inputs:
        yield grow(Node(x), state.weight, lambda node: node)


def fix(state: State) -> Iterator[Tensor]:
    for x in state.inputs:
        yield grow(Node(x), state.weight, weakref.ref)
