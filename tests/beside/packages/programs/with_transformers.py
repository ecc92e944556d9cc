from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import torch

set_seed(0)
config = BertConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=2
)
ids = torch.randint(1, 64, (480, 12))
rows = [{"input_ids": row, "labels": int(row[0] > 32)} for row in ids]
arguments = TrainingArguments(
    output_dir="out",
    max_steps=60,
    per_device_train_batch_size=8,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    seed=0,
    use_cpu=True,
)
trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=rows)
result = trainer.train()
print(result.training_loss)
