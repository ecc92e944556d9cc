"""attention-is-all-you-need-pytorch: its model trained on random sentences, then its beam search."""

import torch
from torch import nn
from transformer.Models import Transformer
from transformer.Optim import ScheduledOptim
from transformer.Translator import Translator

VOCABULARY, PAD, BEGIN, END = 2000, 0, 1, 2

torch.manual_seed(0)
model = Transformer(
    VOCABULARY, VOCABULARY, PAD, PAD, d_word_vec=256, d_model=256, d_inner=512, n_layers=3, n_head=4, d_k=64, d_v=64
)
optimizer = ScheduledOptim(torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-09), 2.0, 256, 4000)
for step in range(40):
    source, target = torch.randint(3, VOCABULARY, (16, 30)), torch.randint(3, VOCABULARY, (16, 31))
    optimizer.zero_grad()
    predicted = model(source, target[:, :-1])
    loss = nn.functional.cross_entropy(predicted, target[:, 1:].reshape(-1), ignore_index=PAD)
    loss.backward()
    optimizer.step_and_update_lr()
    print(step, loss.item())

translator = Translator(
    model, beam_size=5, max_seq_len=60, src_pad_idx=PAD, trg_pad_idx=PAD, trg_bos_idx=BEGIN, trg_eos_idx=END
)
for _ in range(2):
    print(translator.translate_sentence(torch.randint(3, VOCABULARY, (1, 30))))
