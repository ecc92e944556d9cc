# kind: text
import torch
from torch import nn

torch.manual_seed(11)

VOCAB, CLASSES = 5000, 2
reviews = torch.randint(VOCAB, (2400, 120))
stars = torch.randint(CLASSES, (2400,))

classifier = nn.Sequential(nn.EmbeddingBag(VOCAB, 128), nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))
sgd = torch.optim.SGD(classifier.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()

total_loss = 0
for epoch in range(3):
    for start in range(0, len(reviews), 240):
        text, label = reviews[start : start + 240], stars[start : start + 240]
        sgd.zero_grad()
        loss = criterion(classifier(text), label)
        loss.backward()
        sgd.step()
        total_loss += loss  # expect: retained-graph
    print(f"finished epoch {epoch}")

print("mean loss", total_loss.item() / 30)
