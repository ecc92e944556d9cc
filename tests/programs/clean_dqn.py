# kind: RL
"""DQN with a replay buffer on a tiny corridor."""
import random
from collections import deque, namedtuple

import torch
from torch import nn

Transition = namedtuple("Transition", "s a r s2 d")


class Corridor:
    def __init__(self, n=10):
        self.n = n

    def obs(self):
        o = torch.zeros(self.n)
        o[self.at] = 1
        return o

    def reset(self):
        self.at, self.t = 0, 0
        return self.obs()

    def step(self, a):
        self.at = min(max(self.at + (1 if a else -1), 0), self.n - 1)
        self.t += 1
        done = self.at == self.n - 1 or self.t >= 50
        return self.obs(), float(self.at == self.n - 1), done


class Agent:
    def __init__(self, n):
        make = lambda: nn.Sequential(nn.Linear(n, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
        self.q, self.target = make(), make()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.memory = deque(maxlen=2000)
        self.eps = 1.0

    def act(self, s):
        if random.random() < self.eps:
            return random.randrange(2)
        with torch.no_grad():
            return self.q(s.unsqueeze(0)).argmax(1).item()

    def learn(self, batch=128):
        if len(self.memory) < batch:
            return
        b = Transition(*zip(*random.sample(self.memory, batch)))
        s, s2 = torch.stack(b.s), torch.stack(b.s2)
        a, r, d = torch.tensor(b.a), torch.tensor(b.r), torch.tensor(b.d, dtype=torch.float32)
        q = self.q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            y = r + 0.99 * (1 - d) * self.target(s2).amax(1)
        loss = nn.functional.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


random.seed(0)
torch.manual_seed(0)
env = Corridor()
agent = Agent(env.n)
for episode in range(12):
    s, done, total = env.reset(), False, 0.0
    while not done:
        a = agent.act(s)
        s2, r, done = env.step(a)
        agent.memory.append(Transition(s, a, r, s2, done))
        agent.learn()
        s, total = s2, total + r
    agent.eps = max(0.05, agent.eps * 0.95)
    if episode % 4 == 0:
        agent.target.load_state_dict(agent.q.state_dict())
    print(episode, total)
