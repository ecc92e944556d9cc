# kind: vision with a loader
"""A convolutional network fed by a loader in the main process that has next to nothing to do."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """Images that lie ready in memory."""

    def __init__(self, n):
        self.images = torch.randn(n, 3, 64, 64)
        self.classes = torch.randint(10, (n,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.classes[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(64 * 16 * 16, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.relu(self.conv2(x))
        x = self.pool(torch.relu(self.conv3(x)))
        return self.fc(x.flatten(1))


def train():
    torch.manual_seed(3)
    net = Net()
    loader = DataLoader(Squares(24 * 16), batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for images, classes in loader:
        optimizer.zero_grad()
        loss = criterion(net(images), classes)
        loss.backward()
        optimizer.step()
    return loss


print("last loss", train().item())
