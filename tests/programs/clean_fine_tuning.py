# kind: HF
"""Fine-tune a small BERT for classification with a loop of one's own."""

import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(
    vocab_size=2000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, num_labels=3, max_position_embeddings=128
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 24))
model.train()
for step in range(24):
    batch = {"input_ids": torch.randint(5, 2000, (16, 128)), "labels": torch.randint(3, (16,))}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
