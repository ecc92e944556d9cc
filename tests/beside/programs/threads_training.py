"""Two threads train at the same time."""
import threading

import torch
from _tiny import digest

torch.manual_seed(0)
models = [torch.nn.Linear(8, 8) for _ in range(2)]
data = [torch.randn(60, 4, 8) for _ in range(2)]


def work(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()


threads = [threading.Thread(target=work, args=pair, name=f"trainer {at}") for at, pair in enumerate(zip(models, data))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
digest(*models)
