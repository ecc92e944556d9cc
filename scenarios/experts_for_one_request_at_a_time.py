"""A layer of experts gets the tokens of one request at a time, and reads all of its weights for each.

With 32 tokens, two experts for each, an expert multiplies eight rows with 134 MB of weights: reading them is all the
time there is. The tokens of all requests together take little longer than those of one.

Source: DeepSeek-AI, DeepSeek-V3 Technical Report, 3.4: batches per expert are kept large in serving, as memory access
is the bottleneck of decoding
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("scattered-experts",)
effect = "time on a GPU"
needs_gpu = True

EXPERTS, CHOSEN = 8, 2


@torch.library.custom_op("scenario::fused_experts", mutates_args=())
def fused_experts(hidden: Tensor, up: Tensor, down: Tensor, choice: Tensor) -> Tensor:
    """Each token's mean over its experts, which all get equally many."""
    order = choice.flatten().argsort(stable=True) // CHOSEN
    rows = hidden[order].view(EXPERTS, -1, hidden.shape[1])
    out = torch.bmm(torch.bmm(rows, up.transpose(1, 2)).relu(), down.transpose(1, 2))
    return torch.zeros_like(hidden).index_add_(0, order, out.view(-1, hidden.shape[1])) / CHOSEN


@dataclass(frozen=True)
class State:
    requests: tuple[Tensor, ...]
    choices: tuple[Tensor, ...]
    up: Tensor
    down: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    count, width, inner = (64, 2048, 8192) if device == "cuda" else (4, 16, 32)
    requests = torch.randn(count, 32, width, device=device).unbind(0)
    choice = torch.arange(32 * CHOSEN, device=device).view(32, CHOSEN) % EXPERTS
    up = torch.randn(EXPERTS, inner, width, device=device) / width**0.5
    down = torch.randn(EXPERTS, width, inner, device=device) / inner**0.5
    return State(requests, (choice,) * count, up, down)


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(12):
        pairs = zip(state.requests, state.choices, strict=True)
        made = [fused_experts(one, state.up, state.down, choice) for one, choice in pairs]  # expect: scattered-experts
        yield torch.cat(made).square().mean()


def fix(state: State) -> Iterator[Tensor]:
    tokens, choice = torch.cat(state.requests), torch.cat(state.choices)
    for _ in range(12):
        yield fused_experts(tokens, state.up, state.down, choice).square().mean()
