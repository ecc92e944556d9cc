import torch
from torch import nn, optim


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class Trainer:
    def __init__(self, noise=32, data=64):
        self.noise, self.data = noise, data
        self.painter, self.judge = mlp(noise, 64, data), mlp(data, 1024, 1024, 1)
        self.opt_p = optim.Adam(self.painter.parameters(), 2e-4)
        self.opt_j = optim.Adam(self.judge.parameters(), 2e-4)
        self.loss = nn.BCEWithLogitsLoss()

    def step(self, real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = self.painter(torch.randn(len(real), self.noise))
        self.judge.zero_grad()
        judged = self.loss(self.judge(real), ones) + self.loss(self.judge(fake.detach()), zeros)
        judged.backward()
        self.opt_j.step()

        self.painter.zero_grad()
        fooled = self.loss(self.judge(fake), ones)
        fooled.backward(inputs=list(self.painter.parameters()))  # expect: unused-gradients
        self.opt_p.step()
        return judged.item(), fooled.item()


torch.manual_seed(21)
trainer = Trainer()
for _ in range(25):
    seen = trainer.step(torch.randn(256, 64).abs())
print("%.5f %.5f" % seen)
