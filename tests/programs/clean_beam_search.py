# kind: inference, decoding
"""Beam search with a small decoder; nothing is trained."""
import functools

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab, dim, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, layers, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def step(self, token, state):
        out, state = self.rnn(self.emb(token), state)
        return self.head(out[:, -1]).log_softmax(-1), state


@torch.inference_mode()
def beam_search(model, context, width, max_len, bos=0):
    layers, dim = model.rnn.num_layers, model.rnn.hidden_size
    state = context.expand(layers, width, dim).contiguous()
    seqs = torch.full((width, 1), bos)
    scores = torch.zeros(width)
    scores[1:] = -1e9
    for _ in range(max_len):
        logp, state = model.step(seqs[:, -1:], state)
        total = scores[:, None] + logp
        scores, flat = total.flatten().topk(width)
        parent = flat // logp.shape[1]
        token = flat % logp.shape[1]
        seqs = torch.cat([seqs[parent], token[:, None]], dim=1)
        state = state[:, parent].contiguous()
    return seqs[scores.argmax()]


def main():
    torch.manual_seed(0)
    model = Decoder(8000, 256, 2).eval()
    search = functools.partial(beam_search, model, width=8, max_len=20)
    lengths = []
    for i in range(14):
        best = search(torch.randn(1, 1, 256))
        lengths.append(len(best.unique()))
    print(sum(lengths) / len(lengths))


main()
