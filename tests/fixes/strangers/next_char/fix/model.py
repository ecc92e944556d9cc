from torch.nn import *


class NextChar(Module):
    def __init__(self, opt):
        super().__init__()
        self.table = Embedding(opt.n_chars, opt.n_hidden)
        self.rnn = GRU(opt.n_hidden, opt.n_hidden, batch_first=True)
        self.scores = Linear(opt.n_hidden, opt.n_chars)

    def forward(self, context):
        hidden, _ = self.rnn(self.table(context))
        return self.scores(hidden[:, -1])
