import torch, torch.nn as nn

class Tagger(nn.Module):
    def __init__(self, vocab=500, dim=48, hidden=64, tags=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.GRUCell(dim, hidden)
        self.hidden = hidden
        self.out = nn.Linear(hidden, tags)

    def forward(self, words):
        x = self.embed(words)
        h = x.new_zeros(x.size(0), self.hidden)
        states = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)  # expect: unrolled-recurrence
            states.append(h)
        return self.out(torch.stack(states, dim=1))

if __name__ == '__main__':
    torch.manual_seed(4)
    model = Tagger(); crit = nn.CrossEntropyLoss()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for it in range(40):
        w = torch.randint(0, 500, (32, 80)); y = w % 7
        opt.zero_grad(); loss = crit(model(w).flatten(0, 1), y.flatten()); loss.backward(); opt.step()
    print('loss', round(loss.item(), 4))
