import optuna

import torch

optuna.logging.set_verbosity(optuna.logging.WARNING)
x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))


def objective(trial):
    torch.manual_seed(0)
    width = trial.suggest_int("width", 8, 32)
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), trial.suggest_float("lr", 1e-3, 1e-1, log=True))
    for _ in range(20):
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=3)
print(study.best_value)
