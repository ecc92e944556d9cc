# Softmax regression from scratch, after a textbook.
import torch

torch.manual_seed(1234)
num_inputs, num_outputs, hidden = 3000, 10, 1500
W1 = torch.normal(0, 0.01, size=(num_inputs, hidden), requires_grad=True)
b1 = torch.zeros(hidden, requires_grad=True)
W2 = torch.normal(0, 0.01, size=(hidden, num_outputs), requires_grad=True)
b2 = torch.zeros(num_outputs, requires_grad=True)
params = [W1, b1, W2, b2]


def net(X):
    return torch.relu(X @ W1 + b1) @ W2 + b2


def cross_entropy(y_hat, y):
    return -torch.log_softmax(y_hat, 1)[range(len(y_hat)), y]


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()  # expect: zero-filled-gradients


def data_iter(batch_size, batches):
    for _ in range(batches):
        X = torch.rand(batch_size, num_inputs)
        yield X, (X[:, 0] * 10).long()


for X, y in data_iter(8, 150):
    l = cross_entropy(net(X), y)
    l.sum().backward()
    sgd(params, 0.1, len(X))
print(f'loss {float(l.mean()):f}')
