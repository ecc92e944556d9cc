"""Sparse gradients, complex numbers, nested tensors and meta tensors pass through the recorded steps."""
import torch
from _tiny import digest

torch.manual_seed(0)
table = torch.nn.Embedding(50, 4, sparse=True)
optimizer = torch.optim.SparseAdam(table.parameters())
spectrum = torch.zeros(4)
for _ in range(60):
    optimizer.zero_grad()
    rows = table(torch.randint(50, (6,)))
    loss = torch.fft.fft(rows).abs().pow(2).mean()
    loss.backward()
    spectrum += torch.fft.fft(rows.detach()).abs().sum(0)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    meta = torch.empty(10, 10, device="meta") @ torch.empty(10, 3, device="meta")
    optimizer.step()
print(nested.dim(), meta.shape, table.weight.grad.is_sparse)
digest(table, spectrum)
