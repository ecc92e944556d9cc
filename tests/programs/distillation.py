# kind: distillation
"""Knowledge distillation: a big teacher, a small student."""
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn


def mlp(*sizes):
    return nn.Sequential(*[m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())][:-1])


def kd_loss(student_logits, teacher_logits, labels, T=4.0, alpha=0.7):
    soft = F.kl_div(F.log_softmax(student_logits / T, 1), F.softmax(teacher_logits / T, 1), reduction="batchmean") * T * T
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)


def main(hp):
    torch.manual_seed(hp.seed)
    teacher, student = mlp(256, 1024, 1024, 1024, 20), mlp(256, 64, 20)
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=hp.lr)
    for step in range(hp.steps):
        x, y = torch.randn(hp.batch, 256), torch.randint(20, (hp.batch,))
        t = teacher(x)  # expect: unused-autograd-graph
        loss = kd_loss(student(x), t.detach(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main(SimpleNamespace(seed=0, lr=0.1, steps=40, batch=512))
