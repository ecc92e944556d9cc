# kind: inference, transformer
"""Extract CLS features of many sequences; keep the first token only."""
import torch
from torch import nn

torch.manual_seed(0)


class Extractor:
    def __init__(self, layers=2, dim=128):
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True)
        self.net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
        self.features = []

    @torch.no_grad()
    def __call__(self, batch):
        hidden = self.net(batch)
        self.features.append(hidden[:, 0])  # expect: oversized-storage

    def result(self):
        return torch.cat(self.features)


ex = Extractor()
for i in range(30):
    ex(torch.randn(16, 128, 128))
print(ex.result().shape)
