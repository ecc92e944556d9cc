"""Attention over sequences that get longer each time makes cuDNN compile a plan for each of their lengths.

On Hopper and Blackwell `scaled_dot_product_attention` uses cuDNN's kernels in half precision. They need a plan for the
exact shapes and strides, which cuDNN takes 20 to 550 ms on the host to make. A cache of keys and values that grows
token by token has a new shape in each step. The process keeps each plan, so there are more lengths than are measured,
and no earlier run warms the process up.

Its recording is missing: the one made so far followed a run of the same lengths.

Source: modelscope/FunASR issue 3704 (steps of 98 ms took 1.05 s whenever a new length came; without cuDNN's attention
100 ms on average instead of 245); meta-pytorch/torchtune issue 1652.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

triggers = ("attention-plan-per-shape",)
effect = "time on a GPU"
needs_gpu = True
recorded_cold = True


@dataclass(frozen=True)
class State:
    queries: Tensor
    keys: Tensor
    values: Tensor
    lengths: range


def setup(device: str) -> State:
    torch.manual_seed(0)
    heads, longest = (16, 1024) if device == "cuda" else (2, 64)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    keys, values = (torch.randn(4, heads, longest, 64, device=device, dtype=kind) for _ in range(2))
    queries = torch.randn(4, heads, 1, 64, device=device, dtype=kind)
    return State(queries, keys, values, range(longest // 2, longest))


def pitfall(state: State) -> Iterator[Tensor]:
    torch.backends.cuda.enable_cudnn_sdp(True)
    for length in state.lengths:
        keys, values = state.keys[:, :, :length], state.values[:, :, :length]
        mixed = scaled_dot_product_attention(state.queries, keys, values)  # expect: attention-plan-per-shape
        yield mixed.float().mean()


def fix(state: State) -> Iterator[Tensor]:
    torch.backends.cuda.enable_cudnn_sdp(False)
    for length in state.lengths:
        keys, values = state.keys[:, :, :length], state.values[:, :, :length]
        mixed = scaled_dot_product_attention(state.queries, keys, values)
        yield mixed.float().mean()
