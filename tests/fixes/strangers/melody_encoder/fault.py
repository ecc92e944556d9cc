from __future__ import annotations

from typing import Iterator, NamedTuple

import torch
from torch import Tensor, nn


class Batch(NamedTuple):
    notes: Tensor
    lengths: Tensor


class MelodyEncoder(nn.Module):
    """Reads a melody note by note and keeps the final state."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.hidden: int = hidden
        self.embed = nn.Embedding(vocabulary, embedding)
        self.cell = nn.GRUCell(embedding, hidden)

    def forward(self, notes: Tensor) -> Tensor:
        embedded: Tensor = self.embed(notes)
        state: Tensor = embedded.new_zeros(notes.shape[0], self.hidden)
        for note in embedded.unbind(dim=1):
            state = self.cell(note, state)  # expect: unrolled-recurrence
        return state


class Composer(nn.Module):
    def __init__(self, encoder: MelodyEncoder, styles: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.style = nn.Linear(encoder.hidden, styles)

    def forward(self, batch: Batch) -> Tensor:
        return self.style(self.encoder(batch.notes))


def melodies(count: int, size: int, length: int, vocabulary: int) -> Iterator[Batch]:
    source = torch.Generator().manual_seed(4)
    for _ in range(count):
        notes = torch.randint(vocabulary, (size, length), generator=source)
        yield Batch(notes, torch.full((size,), length))


def run(batches: Iterator[Batch], composer: Composer, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    for batch in batches:
        target = batch.notes.sum(1) % 5
        loss = nn.functional.cross_entropy(composer(batch), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.item()


def main() -> None:
    torch.manual_seed(0)
    composer = Composer(MelodyEncoder(128, 32, 64), styles=5)
    optimizer = torch.optim.Adam(composer.parameters(), lr=1e-3)
    losses = list(run(melodies(200, 4, 120, 128), composer, optimizer))
    print(f"{losses[0]:.4f} {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
