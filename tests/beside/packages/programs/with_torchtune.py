from torchtune.models.llama2 import llama2
from torchtune.training import set_seed

import torch

set_seed(0)
model = llama2(vocab_size=64, num_layers=2, num_heads=2, num_kv_heads=2, embed_dim=32, max_seq_len=32)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
tokens = torch.randint(0, 64, (2, 16))
for _ in range(50):
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(loss.item())
