"""Lightning: an autoencoder as in its introduction, with validation, on random images."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784))

    def training_step(self, batch, index):
        (images,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(images)), images)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        (images,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(images)), images))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0, verbose=False)
images = torch.rand(6400, 784)
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(
    Autoencoder(),
    DataLoader(TensorDataset(images), batch_size=32, shuffle=True),
    DataLoader(TensorDataset(images[:640]), batch_size=64),
)
print({name: round(value.item(), 5) for name, value in trainer.callback_metrics.items()})
