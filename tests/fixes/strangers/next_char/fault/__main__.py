import torch
from torch.nn.functional import cross_entropy

from .model import *
from .options import Options

opt = Options()
torch.manual_seed(6)
model = NextChar(opt)
adam = torch.optim.Adam(model.parameters(), 1e-3)


def contexts():
    for _ in range(opt.n_steps):
        text = torch.randint(opt.n_chars, (opt.batch, opt.length + 1))
        yield text[:, :-1], text[:, -1]


for context, following in contexts():
    adam.zero_grad()
    loss = cross_entropy(model(context), following)
    loss.backward()
    adam.step()
print("loss", round(loss.item(), 4))
