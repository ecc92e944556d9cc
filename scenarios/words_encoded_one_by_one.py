"""An encoder that is called for each word of a sentence does little work in each of many calls.

Taggers that build a word's vector from its letters, few-shot learners that embed one episode at a time, and models that
take an image alone loop over what could be rows of one batch. Each call pays for every operator anew, and multiplies a
handful of rows. The encoder takes all words at once; the first dimensions are put together and taken apart again.

Source: character models of taggers such as LM-LSTM-CRF, which flatten the words of a batch for this reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unbatched-calls",)


@dataclass(frozen=True)
class State:
    letters: nn.Embedding
    encoder: nn.Sequential
    sentences: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    letters = nn.Embedding(64, 16).to(device).requires_grad_(False)
    encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    encoder = encoder.to(device).requires_grad_(False)
    sentences = [torch.randint(0, 64, (8, 48, 10), device=device) for _ in range(40)]
    return State(letters, encoder, sentences)


def pitfall(state: State) -> Iterator[Tensor]:
    for sentences in state.sentences:
        words = []
        for place in range(sentences.shape[1]):
            letters = state.letters(sentences[:, place])
            words.append(state.encoder(letters.mean(1)))  # expect: unbatched-calls
        yield torch.stack(words, 1).amax(1)


def fix(state: State) -> Iterator[Tensor]:
    for sentences in state.sentences:
        letters = state.letters(sentences.flatten(0, 1))
        words = state.encoder(letters.mean(1))
        yield words.unflatten(0, sentences.shape[:2]).amax(1)
