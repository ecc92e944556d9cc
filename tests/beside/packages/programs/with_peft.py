from peft import LoraConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import torch

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
model = get_peft_model(
    model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, target_modules=["c_attn"], fan_in_fan_out=True)
)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
tokens = torch.randint(0, 64, (4, 16))
for _ in range(60):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
