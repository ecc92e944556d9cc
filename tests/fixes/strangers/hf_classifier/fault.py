#!/usr/bin/env python
# coding=utf-8
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, set_seed


@dataclass
class Arguments:
    hidden: int = 128
    layers: int = 3
    eval_batches: int = 16
    train_batches: int = 4


def make_dataset(count, generator):
    rows = []
    for _ in range(count):
        ids = torch.randint(5, 800, (48,), generator=generator)
        rows.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": (ids[0] > 400).long()})
    return rows


def evaluate(accelerator, model, loader):
    model.eval()
    correct = seen = 0
    for batch in loader:
        outputs = model(**batch)  # expect: unused-autograd-graph
        predictions = outputs.logits.argmax(dim=-1)
        correct += accelerator.gather(predictions.eq(batch["labels"])).sum().item()
        seen += predictions.numel()
    return {"accuracy": correct / seen}


def main():
    args, = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    set_seed(0)
    config = BertConfig(
        vocab_size=800, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=4,
        intermediate_size=4 * args.hidden, num_labels=2, max_position_embeddings=64,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    g = torch.Generator().manual_seed(1)
    train = DataLoader(make_dataset(32 * args.train_batches, g), batch_size=32)
    valid = DataLoader(make_dataset(64 * args.eval_batches, g), batch_size=64)
    accelerator = Accelerator(cpu=True)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    model.train()
    for batch in train:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"train loss {loss.item():.4f}")
    accelerator.print(evaluate(accelerator, model, valid))


if __name__ == "__main__":
    main()
