import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, hidden_states, padding):
        query_layer = self.split(self.query(hidden_states))
        key_layer = self.split(self.key(hidden_states))
        value_layer = self.split(self.value(hidden_states))
        mask = torch.where(padding[:, None, None, :], -1e9, 0.0)
        context = F.scaled_dot_product_attention(query_layer, key_layer, value_layer, attn_mask=mask)
        return context.permute(0, 2, 1, 3).flatten(2)


def main():
    torch.manual_seed(1)
    block = SelfAttention(128, 4)
    head = nn.Linear(128, 1)
    adam = torch.optim.AdamW([*block.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(16):
        x = torch.randn(4, 384, 128)
        lengths = torch.randint(1, 384, (4, 1))
        padding = torch.arange(384)[None] >= lengths
        loss = head(block(x, padding)).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
