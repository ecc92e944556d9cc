"""spawn is the start method of all processes, and torch.multiprocessing.spawn trains twice."""
import torch.multiprocessing as mp
from _tiny import digest, digest_of, train


def work(number, queue):
    queue.put((number, digest_of(train(10, number)[0])))


if __name__ == "__main__":
    mp.set_start_method("spawn")
    model, _ = train()
    queue = mp.get_context().SimpleQueue()
    mp.spawn(work, (queue,), nprocs=2)
    print(sorted(queue.get() for _ in range(2)), mp.get_start_method())
    digest(model)
