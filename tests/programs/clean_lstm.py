# kind: RNN
"""Truncated backpropagation through time: the hidden state is carried over, detached from its past."""

import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, symbols, hidden):
        super().__init__()
        self.embed = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, hidden, batch_first=True)
        self.to_symbols = nn.Linear(hidden, symbols)

    def forward(self, text, state=None):
        outputs, state = self.lstm(self.embed(text), state)
        return self.to_symbols(outputs), state


class TruncatedTrainer:
    def __init__(self, model, span):
        self.model, self.span = model, span
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

    def train(self, text):
        state = None
        for begin in range(0, text.shape[1] - self.span, self.span):
            x = text[:, begin : begin + self.span]
            y = text[:, begin + 1 : begin + 1 + self.span]
            logits, state = self.model(x, state)
            state = tuple(part.detach() for part in state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss


if __name__ == "__main__":
    torch.manual_seed(5)
    last = TruncatedTrainer(CharModel(60, 192), span=32).train(torch.randint(60, (32, 32 * 20 + 1)))
    print("loss per symbol", round(last.item(), 4))
