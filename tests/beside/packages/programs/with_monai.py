from monai.data import DataLoader, Dataset
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, RandFlipd, ScaleIntensityd
from monai.utils import set_determinism

import torch

set_determinism(0)
rows = [{"image": torch.rand(1, 16, 16), "label": (torch.rand(1, 16, 16) > 0.5).float()} for _ in range(100)]
transform = Compose([ScaleIntensityd("image"), RandFlipd(["image", "label"], prob=0.5)])
loader = DataLoader(Dataset(rows, transform), batch_size=2, shuffle=True)
model = UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), strides=(2,))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
criterion = DiceLoss(sigmoid=True)
for batch in loader:
    optimizer.zero_grad()
    loss = criterion(model(batch["image"]), batch["label"])
    loss.backward()
    optimizer.step()
print(loss.item())
