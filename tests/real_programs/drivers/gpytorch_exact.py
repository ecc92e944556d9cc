"""gpytorch: the exact regression of its first tutorial, on a thousand points."""

import math

import gpytorch
import torch


class Regression(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(0)
x = torch.linspace(0, 1, 700)
y = torch.sin(x * (2 * math.pi)) + torch.randn(x.size()) * math.sqrt(0.04)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Regression(x, y, likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(80):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    lengthscale = model.covar_module.base_kernel.lengthscale
    print(step, f"{loss.item():.3f} {lengthscale.item():.3f} {model.likelihood.noise.item():.3f}")
    optimizer.step()
