"""pytorch/examples' language_translation: its model on random sentences, as its corpus would have to be downloaded."""

import torch
from model import Translator
from torch import nn

VOCABULARY = 2000

torch.manual_seed(0)
model = Translator(3, 3, 256, 8, VOCABULARY, VOCABULARY, 512, 0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for step in range(36):
    source, target = torch.randint(1, VOCABULARY, (24, 32)), torch.randint(1, VOCABULARY, (25, 32))
    shown = target[:-1]
    later = torch.triu(torch.ones(24, 24, dtype=torch.bool), diagonal=1)
    none = torch.zeros(24, 24, dtype=torch.bool)
    source_padding, target_padding = (source == 0).T, (shown == 0).T
    logits = model(source, shown, none, later, source_padding, target_padding, source_padding)
    optimizer.zero_grad()
    loss = criterion(logits.reshape(-1, VOCABULARY), target[1:].reshape(-1))
    loss.backward()
    optimizer.step()
    print(step, loss.item())
