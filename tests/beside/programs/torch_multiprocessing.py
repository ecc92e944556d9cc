"""Tensors are shared with a child, which adds to them."""
import torch
import torch.multiprocessing as mp
from _tiny import begin, digest, step


def add(tensor, queue):
    tensor += 1
    queue.put(tensor.sum().item())


context = mp.get_context("fork")
model, optimizer = begin()
model.share_memory()
shared = torch.zeros(4).share_memory_()
queue = context.Queue()
for number in range(60):
    step(model, optimizer)
    if number in (3, 6, 30):
        process = context.Process(target=add, args=(shared, queue))
        process.start()
        print(queue.get())
        process.join()
print(shared, shared.is_shared(), model[0].weight.is_shared())
digest(model)
