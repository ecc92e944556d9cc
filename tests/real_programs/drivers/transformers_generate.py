"""transformers' generate, greedy, with its cache, on random weights."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=1000, n_embd=256, n_layer=4, n_head=4, eos_token_id=None, bos_token_id=0)
).eval()
for number in range(3):
    prompt = torch.randint(1, 1000, (2, 16))
    tokens = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=120, do_sample=False, pad_token_id=0
    )
    print(number, tokens[:, 16:24].tolist())
