# kind: RL
"""Double DQN on a vectorised toy environment with image-like observations."""
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

SIDE, FRAMES, ACTIONS = 20, 4, 4


class ChaseEnv:
    """n agents on a torus chase a moving target; the observation is a stack of heat maps."""

    MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n):
        self.n = n
        axis = torch.arange(SIDE, dtype=torch.float32)
        self.grid_y, self.grid_x = torch.meshgrid(axis, axis, indexing="ij")
        self.agent = torch.randint(0, SIDE, (n, 2))
        self.target = torch.randint(0, SIDE, (n, 2))
        self.frames = torch.zeros(n, FRAMES, SIDE, SIDE)

    def _heat(self, pos):
        p = pos.float()
        dy = self.grid_y - p[:, 0, None, None]
        dx = self.grid_x - p[:, 1, None, None]
        return torch.exp(-(dy * dy + dx * dx) / 4.0)

    def observe(self):
        self.frames = torch.roll(self.frames, 2, dims=1)
        self.frames[:, 0] = self._heat(self.agent)
        self.frames[:, 1] = self._heat(self.target)
        return self.frames.flatten(1)

    def step(self, action):
        before = (self.agent - self.target).abs().sum(1)
        self.agent = (self.agent + self.MOVES[action]) % SIDE
        self.target = (self.target + self.MOVES[torch.randint(0, 4, (self.n,))]) % SIDE
        after = (self.agent - self.target).abs().sum(1)
        return self.observe(), (before - after).float()


class Replay:
    def __init__(self):
        self.store = None

    def __len__(self):
        return 0 if self.store is None else len(self.store["action"])

    def add(self, **new):
        if self.store is None:
            self.store = {k: v.clone() for k, v in new.items()}
            return
        self.store = {k: torch.cat((old, new[k])) for k, old in self.store.items()}  # expect: growing-concatenation

    def sample(self, size):
        idx = torch.randint(0, len(self), (size,))
        return {k: v[idx] for k, v in self.store.items()}


def q_network():
    return nn.Sequential(
        nn.Linear(FRAMES * SIDE * SIDE, 512), nn.ReLU(),
        nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, ACTIONS),
    )


@torch.no_grad()
def act(net, obs, eps):
    greedy = net(obs).argmax(dim=1)
    explore = torch.randint(0, ACTIONS, greedy.shape)
    return torch.where(torch.rand(greedy.shape) < eps, explore, greedy)


def td_loss(online, target, batch, gamma=0.97):
    q = online(batch["obs"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = online(batch["next_obs"]).argmax(dim=1, keepdim=True)
        backup = batch["reward"] + gamma * target(batch["next_obs"]).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(q, backup)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--envs", type=int, default=64)
    ap.add_argument("--batch", type=int, default=192)
    args = ap.parse_args()
    torch.manual_seed(3)
    env, replay = ChaseEnv(args.envs), Replay()
    online = q_network()
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), lr=3e-4, fused=True)
    obs = env.observe()
    for step in range(1, args.steps + 1):
        action = act(online, obs, eps=max(0.05, 1 - step / 100))
        next_obs, reward = env.step(action)
        replay.add(obs=obs, action=action, reward=reward, next_obs=next_obs)
        obs = next_obs
        loss = td_loss(online, target, replay.sample(args.batch))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} replay {len(replay)} reward {reward.mean().item():+.3f} td {loss.item():.4f}")


if __name__ == "__main__":
    main()
