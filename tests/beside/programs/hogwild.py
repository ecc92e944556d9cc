"""Forked processes train one shared model after its first steps."""
import torch.multiprocessing as mp
from _tiny import begin, digest, step


def work(model):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for _ in range(20):
        step(model, optimizer)


model, optimizer = begin()
model.share_memory()
for number in range(60):
    step(model, optimizer)
    if number in (4, 7, 30):
        processes = [mp.get_context("fork").Process(target=work, args=(model,)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes])
digest(model)
