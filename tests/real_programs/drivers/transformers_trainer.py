"""transformers' Trainer: a small GPT-2 on random tokens."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class RandomTokens(Dataset):
    def __len__(self):
        return 280

    def __getitem__(self, index):
        tokens = torch.randint(0, 1000, (64,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=64, n_embd=192, n_layer=4, n_head=4))
with tempfile.TemporaryDirectory() as folder:
    options = TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        num_train_epochs=1,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(model=model, args=options, train_dataset=RandomTokens())
    trainer.train()
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
