import gymnasium as gym

import torch

torch.manual_seed(0)
env = gym.make("CartPole-v1")
policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
for episode in range(40):
    state, _ = env.reset(seed=episode)
    log_probs, total, over = [], 0.0, False
    while not over and len(log_probs) < 20:
        choice = torch.distributions.Categorical(logits=policy(torch.as_tensor(state)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        state, reward, terminated, truncated, _ = env.step(action.item())
        total, over = total + float(reward), terminated or truncated
    loss = -torch.stack(log_probs).sum() * total
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
