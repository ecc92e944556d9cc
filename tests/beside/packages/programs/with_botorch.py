from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

import torch

torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.double)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
for _ in range(4):
    y = (x * 6).sin().sum(1, keepdim=True)
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    candidate, value = optimize_acqf(
        LogExpectedImprovement(model, y.max()), bounds=bounds, q=1, num_restarts=2, raw_samples=8
    )
    x = torch.cat([x, candidate])
print(value.item())
