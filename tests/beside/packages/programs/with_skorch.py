from skorch import NeuralNetClassifier

import numpy as np
import torch

torch.manual_seed(0)
x = np.random.default_rng(0).standard_normal((300, 16), dtype=np.float32)
y = (x.sum(1) > 0).astype(np.int64)
module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
net = NeuralNetClassifier(
    module, criterion=torch.nn.CrossEntropyLoss, max_epochs=2, lr=0.1, batch_size=8, train_split=None, verbose=0
)
net.fit(x, y)
print(net.history[-1]["train_loss"])
