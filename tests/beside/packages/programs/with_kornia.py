import kornia.augmentation as K

import torch

torch.manual_seed(0)
augment = torch.nn.Sequential(K.RandomHorizontalFlip(p=0.5), K.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5))
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2))
images, labels = torch.rand(8, 3, 16, 16), torch.randint(0, 2, (8,))
model(images)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(50):
    loss = torch.nn.functional.cross_entropy(model(augment(images)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
