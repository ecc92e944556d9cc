# kind: inference on a thread
"""A queue of documents that one worker thread scores in batches while the main thread collects the results."""
import queue
import threading

import torch
from torch import nn

VOCABULARY, WIDTH, LENGTH, BATCH = 4000, 96, 48, 32


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 192, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1)).squeeze(1)


def work(jobs, results):
    torch.manual_seed(0)
    model = Scorer().eval()
    with torch.inference_mode():
        while (job := jobs.get()) is not None:
            number, tokens = job
            results.put((number, model(tokens)))
    results.put(None)


def main():
    torch.manual_seed(1)
    jobs, results = queue.Queue(maxsize=8), queue.Queue()
    worker = threading.Thread(target=work, args=(jobs, results), daemon=True)
    worker.start()
    best = torch.full((BATCH,), -torch.inf)
    for number in range(150):
        jobs.put((number, torch.randint(0, VOCABULARY, (BATCH, LENGTH))))
    jobs.put(None)
    count = 0
    while (done := results.get()) is not None:
        best = torch.maximum(best, done[1])
        count += 1
    worker.join()
    print(f"{count} batches, the best of each place {best.mean().item():.3f}")


if __name__ == "__main__":
    main()
