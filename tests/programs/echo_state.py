# kind: reservoir, RNN
"""Echo state network: states are collected and a ridge regression is solved at the end."""
import torch

torch.manual_seed(0)
n_in, n_res, T = 8, 400, 600
W_in = torch.rand(n_res, n_in) - 0.5
W = torch.rand(n_res, n_res) - 0.5
W *= 0.9 / torch.linalg.eigvals(W).abs().max()


def run_reservoir(inputs):
    x = torch.zeros(n_res, 1)
    states = torch.empty(n_res, 0)
    for u in inputs:
        x = torch.tanh(W_in @ u.unsqueeze(1) + W @ x)
        states = torch.hstack([states, x])  # expect: growing-concatenation
    return states


def fit(states, target, ridge=1e-4):
    gram = states @ states.T + ridge * torch.eye(n_res)
    return torch.linalg.solve(gram, states @ target).T


def main():
    errors = []
    for trial in range(8):
        inputs = torch.rand(T, n_in)
        target = inputs.cumsum(0)[:, :1].sin()
        states = run_reservoir(inputs)
        w_out = fit(states, target)
        errors.append(((w_out @ states).T - target).square().mean())
    print(torch.stack(errors).mean().item())


if __name__ == "__main__":
    main()
