"""A language model's vocabulary of 50,257 words is no multiple of 8, and the widest product misses the fast kernels.

GPT-2's vocabulary has 256 bytes, 50,000 merges and one end of text. In 16 bits a row of that many numbers is not a
multiple of 16 bytes long. So rows of the logits begin where no thread can load 16 bytes at once, and the library
chooses kernels that load single elements, forward and backward. 47 words that never occur make it 50,304.

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements"; Karpathy's nanoGPT pads the
vocabulary to 50,304 for that reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

triggers = ("misaligned-matmul",)
effect = "time on a GPU"
needs_gpu = True

VOCABULARY = 50257
PADDED = 50304


@dataclass(frozen=True)
class State:
    weight: Tensor
    words: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    tokens, width = (8192, 1024) if device == "cuda" else (8, 16)
    weight = torch.randn(VOCABULARY, width, device=device, dtype=torch.bfloat16) / width**0.5
    hidden = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    targets = torch.randint(VOCABULARY, (tokens,), device=device)
    return State(weight, [(hidden, targets)] * 12)


def pitfall(state: State) -> Iterator[Tensor]:
    weight = state.weight.clone().requires_grad_()
    for hidden, targets in state.words:
        logits = functional.linear(hidden, weight)  # expect: misaligned-matmul
        loss = functional.cross_entropy(logits, targets)
        loss.backward()
        weight.grad = None
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    weight = functional.pad(state.weight, (0, 0, 0, PADDED - VOCABULARY)).requires_grad_()
    for hidden, targets in state.words:
        logits = functional.linear(hidden, weight)[:, :VOCABULARY]
        loss = functional.cross_entropy(logits, targets)
        loss.backward()
        weight.grad = None
        yield loss.detach()
