"""A causal mask is given as a tensor, and no flash kernel takes it.

`scaled_dot_product_attention` then chooses the memory-efficient kernels, which compute the half that the mask throws
away, at a lower rate. The flag `is_causal` says the same, and the flash kernel leaves that half out.

Source: https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

triggers = ("slow-attention",)
effect = "time on a GPU"
needs_gpu = True


@dataclass(frozen=True)
class State:
    query: Tensor
    key: Tensor
    value: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    heads, length, width = (64, 8192, 128) if device == "cuda" else (2, 8, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return State(*(torch.randn(1, heads, length, width, device=device, dtype=dtype) for _ in range(3)))


def pitfall(state: State) -> Iterator[Tensor]:
    query, key, value = state.query, state.key, state.value
    mask = torch.ones(query.shape[2], key.shape[2], device=query.device, dtype=torch.bool).tril()
    for _ in range(24):
        made = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # expect: slow-attention
        yield made.float().square().mean()


def fix(state: State) -> Iterator[Tensor]:
    query, key, value = state.query, state.key, state.value
    for _ in range(24):
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        yield made.float().square().mean()
