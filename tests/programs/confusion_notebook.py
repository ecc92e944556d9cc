# kind: evaluation, notebook
#!/usr/bin/env python
# coding: utf-8

# # Evaluate the classifier

# In[1]:

import torch
import torch.nn as nn

torch.manual_seed(0)
NUM_CLASSES = 10

# In[2]:

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 49, NUM_CLASSES),
)
test_images = torch.rand(6000, 1, 28, 28)
test_labels = torch.randint(0, NUM_CLASSES, (6000,))
test_loader = [(test_images[i : i + 200], test_labels[i : i + 200]) for i in range(0, 6000, 200)]

# In[3]:

confusion_matrix = torch.zeros(NUM_CLASSES, NUM_CLASSES)
correct = 0
total = 0
net.eval()
with torch.no_grad():
    for images, labels in test_loader:
        outputs = net(images)
        _, preds = torch.max(outputs, 1)
        total += labels.size(0)
        correct += (preds == labels).sum()
        for t, p in zip(labels.view(-1), preds.view(-1)):
            confusion_matrix[t.long(), p.long()] += 1  # expect: tensor-element-loop

# In[4]:

print("accuracy", (correct / total).item())
print(confusion_matrix.diag() / confusion_matrix.sum(1))
