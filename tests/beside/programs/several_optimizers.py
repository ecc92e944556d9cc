"""Three optimizers, LBFGS with closures among them, a scheduler and a scaler step in turns."""
import warnings

import torch
from _tiny import begin, digest

warnings.simplefilter("error")
model, optimizer = begin()
other = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
third = torch.optim.LBFGS(model.parameters(), max_iter=2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
scaler = torch.amp.GradScaler("cpu")


def closure():
    third.zero_grad()
    loss = model(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    return loss


for number in range(60):
    for one in (optimizer, other):
        one.zero_grad()
        scaler.scale(model(torch.randn(4, 8)).pow(2).mean()).backward()
        scaler.step(one)
        scaler.update()
    third.step(closure)
    scheduler.step()
    print(scheduler.get_last_lr(), scaler.get_scale(), scheduler._step_count)
digest(model)
