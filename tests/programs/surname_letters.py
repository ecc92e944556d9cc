# kind: RNN
"""Guesses the next letter of surnames with a recurrent network that is written out by hand."""
import torch
import torch.nn as nn
import torch.optim as optim


class LetterRNN(nn.Module):
    def __init__(self, letters, hidden=96):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(letters, 24)
        self.i2h = nn.Linear(24 + hidden, hidden)
        self.h2o = nn.Linear(hidden, letters)

    def forward(self, letter, hidden):
        combined = torch.cat((self.embed(letter), hidden), dim=1)
        hidden = torch.tanh(self.i2h(combined))
        output = self.h2o(hidden)
        return output, hidden


def train(model, names, steps=30):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        batch = names[torch.randint(len(names), (20,))]
        hidden = torch.zeros(len(batch), model.hidden)
        loss = torch.zeros(())
        for i in range(batch.size(1) - 1):
            output, hidden = model(batch[:, i], hidden)  # expect: unrolled-recurrence
            loss = loss + criterion(output, batch[:, i + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item() / batch.size(1), 3))


if __name__ == "__main__":
    torch.manual_seed(3)
    train(LetterRNN(28), torch.randint(0, 28, (400, 41)))
