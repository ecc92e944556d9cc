"""Calling a language model with the whole text for each new token computes the earlier tokens again each time.

With a causal mask a token's keys and values do not depend on later tokens. A model that keeps them needs a single
query, that of the new token, so the work for a text grows with its length instead of its square.

Source: Hugging Face documentation, "Caching" (transformers, KV cache); Pope et al., "Efficiently Scaling Transformer
Inference", 2022.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

triggers = ("missing-kv-cache",)
VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 500, 256, 4, 3, 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, kept: Tensor, start: int) -> Tensor:
        query, key, value = self.project(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        end = start + x.shape[1]
        kept[0, :, :, start:end], kept[1, :, :, start:end] = key, value
        mixed = scaled_dot_product_attention(query, kept[0, :, :, :end], kept[1, :, :, :end], is_causal=start == 0)
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(torch.relu(self.widen(self.between(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH + 1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, caches: list[Tensor], start: int) -> Tensor:
        at = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(at)
        for block, kept in zip(self.blocks, caches, strict=True):
            x = block(x, kept, start)
        return self.head(x[:, -1])


@dataclass(frozen=True)
class State:
    model: Model
    prompts: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    prompts = [torch.randint(VOCABULARY, (2, 8), device=device) for _ in range(12)]
    return State(Model().to(device).eval().requires_grad_(False), prompts)


def caches_for(tokens: Tensor) -> list[Tensor]:
    shape = (2, tokens.shape[0], HEADS, LENGTH, WIDTH // HEADS)
    return [torch.empty(shape, device=tokens.device) for _ in range(LAYERS)]


def pitfall(state: State) -> Iterator[Tensor]:
    for prompt in state.prompts:
        tokens = prompt
        while tokens.shape[1] < LENGTH:
            scores = state.model(tokens, caches_for(tokens), 0)  # expect: missing-kv-cache
            tokens = torch.cat([tokens, scores.argmax(-1, keepdim=True)], dim=1)
        yield scores


def fix(state: State) -> Iterator[Tensor]:
    for prompt in state.prompts:
        caches = caches_for(prompt)
        tokens, new, start = prompt, prompt, 0
        while tokens.shape[1] < LENGTH:
            scores = state.model(new, caches, start)
            new, start = scores.argmax(-1, keepdim=True), tokens.shape[1]
            tokens = torch.cat([tokens, new], dim=1)
        yield scores
