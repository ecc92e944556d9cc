"""nanoGPT's `generate` on random weights: text of 150 tokens, one after another."""

import torch
from model import GPT, GPTConfig

torch.manual_seed(0)
model = GPT(GPTConfig(block_size=256, vocab_size=65, n_layer=6, n_head=6, n_embd=384, dropout=0.0)).eval()
for sample in range(2):
    with torch.no_grad():
        tokens = model.generate(torch.zeros((1, 1), dtype=torch.long), 150, temperature=0.8, top_k=20)
    print(sample, tokens[0].tolist())
