# kind: RNN
"""Seq2seq sorting of digits with GRU cells and teacher forcing."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab, hid):
        super().__init__()
        self.hid = hid
        self.embed = nn.Embedding(vocab, hid)
        self.cell = nn.GRUCell(hid, hid)

    def forward(self, src):
        h = torch.zeros(src.size(0), self.hid)
        emb = self.embed(src)
        for t in range(src.size(1)):
            h = self.cell(emb[:, t], h)  # expect: unrolled-recurrence
        return h


class Decoder(nn.Module):
    def __init__(self, vocab, hid):
        super().__init__()
        self.embed = nn.Embedding(vocab, hid)
        self.gru = nn.GRU(hid, hid, batch_first=True)
        self.out = nn.Linear(hid, vocab)

    def forward(self, tgt, h):
        y, _ = self.gru(self.embed(tgt), h[None])
        return self.out(y)


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, tgt):
        return self.decoder(tgt, self.encoder(src))


def batches(n, size=32, length=60):
    for _ in range(n):
        src = torch.randint(1, 10, (size, length))
        tgt = src.sort(dim=1).values
        yield src, torch.cat([torch.zeros(size, 1, dtype=torch.long), tgt[:, :-1]], 1), tgt


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Seq2Seq(Encoder(10, 96), Decoder(10, 96))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    ce = nn.CrossEntropyLoss()
    for step, (src, inp, tgt) in enumerate(batches(24)):
        opt.zero_grad()
        loss = ce(model(src, inp).reshape(-1, 10), tgt.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(step, loss.item())
