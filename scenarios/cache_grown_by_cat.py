"""Growing a cache of keys and values with torch.cat copies the whole cache for each token.

A token adds one row per head to the cache, and attention then reads all of it. Before that, `torch.cat` reads and
writes all of it once more, so most of a token's time goes into copying old rows. A cache allocated at its maximum
length takes the new row in place, and attention reads the filled part through a view.

Source: Hugging Face documentation, "Cache strategies" (transformers: StaticCache); Pope et al., "Efficiently Scaling
Transformer Inference", 2022.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

triggers = ("growing-concatenation",)
HEADS, WIDTH, TOKENS = 8, 64, 16


@dataclass(frozen=True)
class State:
    projection: Tensor
    prompts: list[list[Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    batch, length = (64, 4096) if device == "cuda" else (4, 512)
    kept = [torch.randn(batch, HEADS, length, WIDTH, device=device) for _ in range(2)]
    return State(torch.randn(WIDTH, 3 * WIDTH, device=device) / 8, [kept] * 12)


def pitfall(state: State) -> Iterator[Tensor]:
    for prompt in state.prompts:
        token, cache = torch.ones_like(prompt[0][:, :, :1]), prompt
        for _ in range(TOKENS):
            query, *new = (token @ state.projection).chunk(3, dim=-1)
            cache = [torch.cat(pair, dim=2) for pair in zip(cache, new, strict=True)]  # expect: growing-concatenation
            token = scaled_dot_product_attention(query, *cache)
        yield token


def fix(state: State) -> Iterator[Tensor]:
    for prompt in state.prompts:
        token, filled = torch.ones_like(prompt[0][:, :, :1]), prompt[0].shape[2]
        cache = [pad(one, (0, 0, 0, TOKENS)) for one in prompt]
        for _ in range(TOKENS):
            query, *new = (token @ state.projection).chunk(3, dim=-1)
            for one, piece in zip(cache, new, strict=True):
                one[:, :, filled : filled + 1] = piece
            filled += 1
            token = scaled_dot_product_attention(query, *(one[:, :, :filled] for one in cache))
        yield token
