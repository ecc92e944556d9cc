import collections, random
import torch
from torch import nn

Transition = collections.namedtuple("Transition", "frame reward")


class Arcade:
    """Sixty-four games at once; one of them is played well."""

    def __init__(self, games=64, size=192):
        self.games, self.size = games, size

    def reset(self):
        self.clock = 0
        return self.look()

    def look(self):
        return torch.rand(self.games, 4, self.size, self.size)

    def step(self, action):
        self.clock += 1
        return self.look(), float(self.clock % 5 == action)


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = collections.deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


random.seed(5); torch.manual_seed(5)
env, memory = Arcade(), ReplayMemory(1000)
q = nn.Sequential(nn.Conv2d(4, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
frames = env.reset()
q(frames)
optimizer = torch.optim.RMSprop(q.parameters(), lr=1e-4)
total = 0.
for t in range(20):
    with torch.no_grad():
        values = q(frames)
    best = int(values.max(1).values.argmax())
    action = int(values[best].argmax())
    nxt, reward = env.step(action)
    memory.push(frames[best], reward)  # expect: oversized-storage
    frames = nxt
    total += reward
    if len(memory) < 8:
        continue
    batch = Transition(*zip(*memory.sample(8)))
    loss = (q(torch.stack(batch.frame)).max(1).values - torch.tensor(batch.reward)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"reward {total:.1f} loss {loss.item():.6f}")
