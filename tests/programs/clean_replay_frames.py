# kind: RL, vision
"""Off-policy learning from frames; the replay buffer fills while it learns."""
import random
from collections import deque

import torch
from torch import nn


def conv():
    return nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 81, 4))


class Replay:
    def __init__(self, size):
        self.buffer = deque(maxlen=size)

    def push(self, *t):
        self.buffer.append(t)

    def sample(self, n):
        s, a, r, s2 = zip(*random.sample(self.buffer, n))
        return torch.stack(s).float() / 255, torch.tensor(a), torch.tensor(r), torch.stack(s2).float() / 255


random.seed(0)
torch.manual_seed(0)
online, target = conv(), conv()
target.load_state_dict(online.state_dict())
opt = torch.optim.RMSprop(online.parameters(), lr=2.5e-4)
replay = Replay(10_000)
frame = torch.randint(0, 255, (4, 84, 84), dtype=torch.uint8)
for t in range(90):
    with torch.no_grad():
        a = random.randrange(4) if random.random() < 0.3 else online(frame[None].float() / 255).argmax().item()
    nxt = torch.roll(frame, a - 1, dims=2)
    replay.push(frame, a, float(a == 2), nxt)
    frame = nxt
    if len(replay.buffer) >= 32:
        s, a, r, s2 = replay.sample(16)
        q = online(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            y = r + 0.99 * target(s2).amax(1)
        loss = nn.functional.huber_loss(q, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if t % 50 == 49:
        target.load_state_dict(online.state_dict())
print(loss.item())
