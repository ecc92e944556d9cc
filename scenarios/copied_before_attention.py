"""Queries, keys and values are put in order before attention, which reads them as they lie.

`.view(batch, tokens, heads, width).transpose(1, 2)` is a view whose last dimension is in order. The kernels for
attention on a GPU take it by its strides; `.contiguous()` copies three tensors of the size of the input in each layer,
for nothing.

Source: transformers 4.38, `modeling_llama.py`, "SDPA with memory-efficient backend is currently (torch==2.1.2) bugged
with non-contiguous inputs with custom attn_mask": the copies stayed in many models and programs without a mask.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

triggers = ("redundant-layout",)
effect = "time on a GPU"
needs_gpu = True

HEADS = 32
LAYERS = 4


@dataclass(frozen=True)
class State:
    tokens: Tensor
    layers: list[nn.Linear]


def setup(device: str) -> State:
    torch.manual_seed(0)
    batch, tokens, width = (32, 1024, 1024) if device == "cuda" else (2, 16, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = [nn.Linear(width, 3 * width, bias=False, device=device, dtype=dtype) for _ in range(LAYERS)]
    return State(torch.randn(batch, tokens, width, device=device, dtype=dtype), layers)


def pitfall(state: State) -> Iterator[Tensor]:
    batch, tokens, _ = state.tokens.shape
    for _ in range(12):
        hidden = state.tokens
        with torch.no_grad():
            for layer in state.layers:
                parts = [part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in layer(hidden).chunk(3, dim=-1)]
                query, key, value = [part.contiguous() for part in parts]  # expect: redundant-layout
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                hidden = attended.transpose(1, 2).reshape(batch, tokens, -1)
        yield hidden.float().square().mean().sqrt()


def fix(state: State) -> Iterator[Tensor]:
    batch, tokens, _ = state.tokens.shape
    for _ in range(12):
        hidden = state.tokens
        with torch.no_grad():
            for layer in state.layers:
                parts = [part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in layer(hidden).chunk(3, dim=-1)]
                query, key, value = parts
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                hidden = attended.transpose(1, 2).reshape(batch, tokens, -1)
        yield hidden.float().square().mean().sqrt()
