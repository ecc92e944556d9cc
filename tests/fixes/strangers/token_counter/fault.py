import torch
from collections import Counter
from torch import nn

class Sampler(nn.Module):
    """Draws words, and rarely the ones it has drawn before."""
    def __init__(self, vocab=400, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)
        self.counter = Counter()

    def forward(self, words):
        return self.out(self.emb(words))

    def count(self, words):
        for word in words:
            self.counter[word.item()] += 1  # expect: tensor-element-loop

torch.manual_seed(12)
m = Sampler()
opt = torch.optim.SGD(m.parameters(), lr=.1)
for i in range(60):
    words = torch.randint(0, 400, (4096,))
    m.count(words)
    lp = m(words[:256]).log_softmax(-1)
    loss = -lp.gather(1, words[1:257, None]).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(m.counter.most_common(3), round(loss.item(), 5))
