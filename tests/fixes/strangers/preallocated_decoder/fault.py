import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, n_in: int, n_hid: int):
        super(Encoder, self).__init__()
        self.rnn_cell = nn.LSTMCell(n_in, n_hid)
        self.n_hid = n_hid

    def forward(self, seq):
        bs, T, _ = seq.size()
        h_t = torch.zeros(bs, self.n_hid)
        c_t = torch.zeros(bs, self.n_hid)
        outputs = torch.zeros(bs, T, self.n_hid)
        for t in range(T):
            h_t, c_t = self.rnn_cell(seq[:, t, :], (h_t, c_t))  # expect: unrolled-recurrence
            outputs[:, t, :] = h_t
        return outputs


class Forecaster(nn.Module):
    def __init__(self):
        super(Forecaster, self).__init__()
        self.encoder = Encoder(12, 48)
        self.linear = nn.Linear(48, 1)

    def forward(self, seq):
        return self.linear(self.encoder(seq)).squeeze(2)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for i in range(40):
        series = torch.randn(16, 90, 12).cumsum(1) / 10
        optimizer.zero_grad()
        loss = F.mse_loss(model(series[:, :-1]), series[:, 1:, 0])
        loss.backward()
        optimizer.step()
    print("loss:", "%.5f" % loss)
