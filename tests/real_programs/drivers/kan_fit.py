"""pykan: the first example of its page, a function of two numbers, with Adam in place of L-BFGS."""

import torch
from kan import KAN, create_dataset

torch.manual_seed(0)
model = KAN(width=[4, 6, 1], grid=5, k=3, seed=0)
dataset = create_dataset(
    lambda x: torch.exp(torch.sin(torch.pi * x[:, [0]]) + x[:, [1]] ** 2) + x[:, [2]] * x[:, [3]],
    n_var=4,
    train_num=1000,
    test_num=500,
)
results = model.fit(dataset, opt="Adam", lr=0.01, steps=1000, lamb=0.001)
print(f"{results['train_loss'][-1]:.4f} {results['test_loss'][-1]:.4f}")
