"""A memory snapshot of one situation, with what is true of it: ``snapshots.py SITUATION FILE``. Needs a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.gpu.children import answer_requests, first_touch

_STATISTICS = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.peak")
_ENTRIES = 15_000
Situation = Callable[[], dict[str, int]]


class Attention(nn.Module):
    """Attention by hand: its tables of scores are B x H x N x N, and the largest thing by far."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.inner, self.outer = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, data: Tensor) -> Tensor:
        samples, length, width = data.shape
        query, key, value = (
            part.view(samples, length, self.heads, -1).transpose(1, 2) for part in self.inner(data).chunk(3, -1)
        )
        scores = (query @ key.transpose(-1, -2)) / (width // self.heads) ** 0.5
        return data + self.outer((scores.softmax(-1) @ value).transpose(1, 2).reshape(samples, length, width))


class Tower(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *(nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)),
        )


def whole_history() -> dict[str, int]:
    """Three steps with Adam, recorded from the first allocation on."""
    _begin_history()
    model, optimizer = _trained(Tower(), lambda: torch.rand(4096, 1024, device="cuda"), 3)
    return _known(model, optimizer)


def late_history() -> dict[str, int]:
    """The same, but parameters and state are older than the history."""
    model, optimizer = _trained(Tower(), lambda: torch.rand(4096, 1024, device="cuda"), 2)
    _begin_history()
    _train(model, optimizer, lambda: torch.rand(4096, 1024, device="cuda"), 2)
    return _known(model, optimizer)


def late_attention() -> dict[str, int]:
    """A late history in which tables of scores make the peak."""
    model, optimizer = _trained(nn.Sequential(*(Attention() for _ in range(5))), _sentences, 2)
    _begin_history()
    _train(model, optimizer, _sentences, 2)
    samples, length, _ = _sentences().shape
    return {**_known(model, optimizer), "score_table_bytes": 4 * samples * 8 * length * length}


def kept_graphs() -> dict[str, int]:
    """Losses that keep their graphs."""
    _begin_history()
    model, losses = Tower().cuda(), []
    for _ in range(8):
        losses.append(model(torch.rand(1024, 1024, device="cuda")).sum())
    return {"parameters_bytes": _bytes_of(model.parameters())}


def out_of_memory() -> dict[str, int]:
    """Graphs kept up to a limit of the process."""
    _begin_history()
    limit_bytes = 2 << 30
    torch.cuda.set_per_process_memory_fraction(limit_bytes / torch.cuda.get_device_properties(0).total_memory)
    model, kept = Tower().cuda(), []
    try:
        for _ in range(500):
            kept.append(model(torch.rand(2048, 1024, device="cuda")))
    except torch.OutOfMemoryError:
        return {"parameters_bytes": _bytes_of(model.parameters()), "limit_bytes": limit_bytes}
    raise AssertionError("the limit was not reached")


SITUATIONS: dict[str, Situation] = {
    situation.__name__.replace("_", "-"): situation
    for situation in (whole_history, late_history, late_attention, kept_graphs, out_of_memory)
}


def _sentences() -> Tensor:
    return torch.rand(8, 1024, 512, device="cuda")


def _begin_history() -> None:
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=_ENTRIES, stacks="python")


def _trained(model: nn.Module, batch: Callable[[], Tensor], steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    _train(model, optimizer, batch, steps)
    return model, optimizer


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Callable[[], Tensor], steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()


def _known(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    state = (value for values in optimizer.state.values() for value in values.values() if value.is_cuda)
    return {"parameters_bytes": _bytes_of(model.parameters()), "state_bytes": _bytes_of(state)}


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def main(name: str, file: str) -> None:
    def take(_: str) -> dict[str, Any]:
        known = SITUATIONS[name]()
        torch.cuda.synchronize()
        statistics = torch.cuda.memory_stats()
        torch.cuda.memory._dump_snapshot(str(Path(file)))
        return {**known, **{key: statistics[key] for key in _STATISTICS}}

    first_touch("cuda")
    answer_requests(take)


if __name__ == "__main__":
    main(*sys.argv[1:3])
