# kind: HF
"""Perplexity of texts under a small GPT-2."""

import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def windows(tokens, length):
    for start in range(0, tokens.shape[1] - length + 1, length):
        yield tokens[:, start : start + length]


def perplexity(model, tokens, length=128):
    model.eval()
    nlls = []
    for window in windows(tokens, length):
        outputs = model(window, labels=window)  # expect: unused-autograd-graph
        nlls.append(outputs.loss.detach())
    return math.exp(torch.stack(nlls).mean())


if __name__ == "__main__":
    torch.manual_seed(0)
    lm = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=128, n_embd=128, n_layer=3, n_head=4))
    print("perplexity", round(perplexity(lm, torch.randint(1000, (4, 128 * 24))), 1))
