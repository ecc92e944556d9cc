"""A decoder with rotary positions (one file, no framework)."""

import dataclasses
import torch
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class ModelArgs:
    dim: int = 64
    n_heads: int = 2
    n_layers: int = 4
    max_seq_len: int = 4096
    vocab: int = 300


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0) -> Tensor:
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    t = torch.arange(end)
    return torch.polar(torch.ones(end, dim // 2), torch.outer(t, freqs))


def apply_rotary(x: Tensor, freqs_cis: Tensor) -> Tensor:
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * freqs_cis[: x.shape[-2]]).flatten(3)


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.head_dim = args.dim // args.n_heads
        self.wqkv = nn.Linear(args.dim, 3 * args.dim, bias=False)
        self.wo = nn.Linear(args.dim, args.dim, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        freqs_cis = precompute_freqs_cis(self.head_dim, self.args.max_seq_len)  # expect: redundant-recomputation
        q, k, v = self.wqkv(x).view(b, s, 3, self.args.n_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k = apply_rotary(q, freqs_cis), apply_rotary(k, freqs_cis)
        o = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(o.transpose(1, 2).reshape(b, s, -1))


class Decoder(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.tok = nn.Embedding(args.vocab, args.dim)
        self.layers = nn.ModuleList(Attention(args) for _ in range(args.n_layers))
        self.out = nn.Linear(args.dim, args.vocab)

    def forward(self, ids):
        h = self.tok(ids)
        for layer in self.layers:
            h = h + layer(h)
        return self.out(h)


def main():
    torch.manual_seed(7)
    args = ModelArgs()
    model = Decoder(args)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(120):
        ids = torch.randint(0, args.vocab, (4, 65))
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optim.zero_grad()
        loss.backward()
        optim.step()
    print(f"{loss:.5f}")


if __name__ == "__main__":
    main()
