"""Scoring the vocabulary at all positions, but using only the scores of the last one.

A forward pass for training returns the scores at every position, because each is compared with the next token. To
continue a text, or to compare answers by their first token, only the scores after the last token count. The largest
product of a small language model is then wasted on all other positions.

Source: karpathy/nanoGPT, model.py ("inference-time mini-optimization: only forward the lm_head on the very last
position"); Hugging Face documentation, the argument `logits_to_keep` of causal language models.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("discarded-logits",)
VOCABULARY, WIDTH, LENGTH = 16_000, 128, 64


@dataclass(frozen=True)
class State:
    embedding: nn.Embedding
    encoder: nn.GRU
    head: nn.Linear
    prompts: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    modules = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, VOCABULARY)
    embedding, encoder, head = (module.to(device).eval().requires_grad_(False) for module in modules)
    prompts = [torch.randint(VOCABULARY, (4, LENGTH), device=device) for _ in range(24)]
    return State(embedding, encoder, head, prompts)


def pitfall(state: State) -> Iterator[Tensor]:
    for tokens in state.prompts:
        hidden, _ = state.encoder(state.embedding(tokens))
        logits = state.head(hidden)  # expect: discarded-logits
        yield logits[:, -1].softmax(-1)


def fix(state: State) -> Iterator[Tensor]:
    for tokens in state.prompts:
        hidden, _ = state.encoder(state.embedding(tokens))
        logits = state.head(hidden[:, -1])
        yield logits.softmax(-1)
