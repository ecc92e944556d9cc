"""Padding every batch to the longest length allowed, though its texts are short.

A tokenizer with `padding="max_length"`, or a `collate_fn` with a fixed width, makes all batches equally long. The model
computes all positions, also those that the mask hides. Padded to the longest text of the batch, the results are the
same, and most of the work is gone.

Source: Hugging Face documentation, "Padding and truncation", and its course, chapter 3, "Dynamic padding".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence

triggers = ("padded-batch",)
PADDING, WORDS, WIDTH, ALLOWED = 0, 500, 64, 160


@dataclass(frozen=True)
class State:
    model: "Tagger"
    optimizer: torch.optim.Optimizer
    batches: list[list[Tensor]]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == PADDING)
        return self.head(hidden).transpose(1, 2)


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = Tagger().to(device)
    lengths = torch.randint(28, 41, (20, 16)).tolist()
    batches = [[torch.randint(1, WORDS, (length,), device=device) for length in batch] for batch in lengths]
    return State(model, torch.optim.SGD(model.parameters(), lr=0.01), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for texts in state.batches:
        tokens = pad_sequence(texts, batch_first=True, padding_value=PADDING)
        tokens = pad(tokens, (0, ALLOWED - tokens.shape[1]), value=PADDING)  # expect: padded-batch
        yield train(state, tokens)


def fix(state: State) -> Iterator[Tensor]:
    for texts in state.batches:
        tokens = pad_sequence(texts, batch_first=True, padding_value=PADDING)
        yield train(state, tokens)


def train(state: State, tokens: Tensor) -> Tensor:
    loss = cross_entropy(state.model(tokens), tokens, ignore_index=PADDING)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
