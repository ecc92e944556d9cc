# kind: training on a thread
"""A service that keeps learning from a sensor stream on a thread of its own while it reports how far it is."""
import threading

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, WINDOW, CLASSES = 12, 64, 5


class Stream:
    """Windows of a signal whose class is the channel with the strongest tone."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.time = torch.linspace(0, 6.28, WINDOW)

    def batch(self, size):
        labels = torch.randint(0, CLASSES, (size,), generator=self.generator)
        noise = torch.randn(size, CHANNELS, WINDOW, generator=self.generator)
        tone = torch.sin(self.time * (1 + labels[:, None].float()))
        noise[:, 0] += 2 * tone
        return noise, labels


class Learner(threading.Thread):
    def __init__(self, updates):
        super().__init__(name="learner")
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv1d(CHANNELS, 48, 5), nn.ReLU(), nn.Conv1d(48, 48, 5), nn.ReLU(),
                                   nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, CLASSES))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, fused=True)
        self.stream, self.updates = Stream(1), updates
        self.activity = []
        self.accuracy = 0.0

    def run(self):
        for _ in range(self.updates):
            signal, labels = self.stream.batch(96)
            features = self.model[:-2](signal)
            logits = self.model[-2:](features)
            loss = F.cross_entropy(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            hits = (logits.detach().argmax(1) == labels).float().mean()
            self.accuracy = 0.9 * self.accuracy + 0.1 * hits.item()
            self.activity.append(features.mean((0, 2)))  # expect: retained-graph


def main():
    learner = Learner(updates=150)
    learner.start()
    while learner.is_alive():
        learner.join(timeout=0.5)
        print(f"after {len(learner.activity):4d} updates {learner.accuracy:.2f}")
    quiet = int((torch.stack(learner.activity[-20:]).mean(0) < 1e-3).sum())
    print(f"{quiet} features are quiet")


if __name__ == "__main__":
    main()
