"""Adding activation checkpointing to a model from outside, at its repeated blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

_FEWEST_BLOCKS = 2
_FEWEST_LAYERS = 4
"""A row of plain layers is cut into pieces of at least two layers."""


class NoBlocks(Exception):
    """The model has nothing to checkpoint."""


def checkpoint_blocks(model: nn.Module) -> None:
    """Each repeated block keeps only its input, and runs again in the backward pass. A row of n plain layers is cut
    into √n such pieces. Raises `NoBlocks` if the model has neither."""
    blocks, rows = _find(model)
    if not blocks and not rows:
        raise NoBlocks("the model has no repeated blocks in a ModuleList or Sequential")
    for block in blocks:
        block.forward = _again(block.forward)
    for row in rows:
        row.forward = _in_pieces(row)  # type: ignore[method-assign]  # likewise


def _find(module: nn.Module) -> tuple[list[nn.Module], list[nn.Sequential]]:
    """The outermost blocks with layers inside, from lists of two or more, and the rows of plain layers."""
    blocks: list[nn.Module] = []
    rows: list[nn.Sequential] = []
    for child in module.children():
        members = list(child.children())
        nested = [next(one.children(), None) is not None for one in members]
        if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(members) >= _FEWEST_BLOCKS and all(nested):
            blocks += members
        elif isinstance(child, nn.Sequential) and len(members) >= _FEWEST_LAYERS and not any(nested):
            rows.append(child)
        else:
            inner_blocks, inner_rows = _find(child)
            blocks += inner_blocks
            rows += inner_rows
    return blocks, rows


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)

    return run


def _in_pieces(row: nn.Sequential) -> Callable[..., Any]:
    pieces = round(math.sqrt(len(row)))

    def run(data: Any) -> Any:
        return checkpoint_sequential(  # type: ignore[no-untyped-call]  # torch does not type it
            list(row), pieces, data, use_reentrant=False, preserve_rng_state=False
        )

    return run
