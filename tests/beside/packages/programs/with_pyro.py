import pyro
import pyro.distributions as dist
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam

import torch

pyro.set_rng_seed(0)
x = torch.randn(50, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5])


def model(x, y):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ weight, noise), obs=y)


svi = SVI(model, AutoNormal(model), Adam({"lr": 0.01}), loss=Trace_ELBO())
for _ in range(50):
    loss = svi.step(x, y)
print(loss)
