"""Two coroutines train in turns."""
# beside: mask (?m)^Executing <.*\n
import asyncio

import torch
from _tiny import digest


async def work(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        await asyncio.sleep(0)
        optimizer.step()


async def main():
    torch.manual_seed(0)
    models = [torch.nn.Linear(8, 8) for _ in range(2)]
    await asyncio.gather(*(work(model, torch.randn(60, 4, 8)) for model in models))
    digest(*models)
    print(len(asyncio.all_tasks()))


asyncio.run(main(), debug=True)
