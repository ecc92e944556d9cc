import segmentation_models_pytorch as smp

import torch

torch.manual_seed(0)
model = smp.Unet(
    "resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(16, 8, 4), in_channels=1, classes=1
)
criterion = smp.losses.DiceLoss(mode="binary")
optimizer = torch.optim.SGD(model.parameters(), 0.01)
images, masks = torch.rand(2, 1, 32, 32), (torch.rand(2, 1, 32, 32) > 0.5).float()
for _ in range(40):
    loss = criterion(model(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
