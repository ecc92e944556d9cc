# kind: transformer
"""nn.Transformer on reversed sequences: teacher forcing, label smoothing, warm-up."""
import math
import torch
import torch.nn as nn


class Positional(nn.Module):
    def __init__(self, d, n=64):
        super().__init__()
        pos, i = torch.arange(n)[:, None], torch.arange(0, d, 2)
        pe = torch.zeros(n, d)
        pe[:, 0::2] = torch.sin(pos * torch.exp(-math.log(1e4) * i / d))
        pe[:, 1::2] = torch.cos(pos * torch.exp(-math.log(1e4) * i / d))
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class Translator(nn.Module):
    def __init__(self, v=300, d=128):
        super().__init__()
        self.src, self.tgt, self.pos = nn.Embedding(v, d), nn.Embedding(v, d), Positional(d)
        self.tf = nn.Transformer(d, 4, 2, 2, 256, dropout=0.1, batch_first=True)
        self.out = nn.Linear(d, v)

    def forward(self, s, t):
        mask = nn.Transformer.generate_square_subsequent_mask(t.size(1))
        return self.out(self.tf(self.pos(self.src(s)), self.pos(self.tgt(t)), tgt_mask=mask, tgt_is_causal=True))


torch.manual_seed(0)
net = Translator()
opt = torch.optim.Adam(net.parameters(), lr=1.0, betas=(0.9, 0.98), fused=True)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 128**-0.5 * min((s + 1) ** -0.5, (s + 1) * 400**-1.5))
ce = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(20):
    s = torch.randint(1, 300, (32, 32))
    t = s.flip(1)
    inp = torch.cat([torch.zeros(32, 1, dtype=torch.long), t[:, :-1]], 1)
    loss = ce(net(s, inp).transpose(1, 2), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 10 == 0:
        print(step, loss.item())
