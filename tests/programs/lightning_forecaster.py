# kind: Lightning
"""A forecaster trained with Lightning; what the epoch's end reports is gathered step by step."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, n, length=96):
        phase = torch.rand(n, 1) * 6.28
        self.series = torch.sin(torch.arange(length + 1) * 0.2 + phase) + 0.1 * torch.randn(n, length + 1)

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return self.series[i, :-1], self.series[i, 1:]


class Forecaster(lightning.LightningModule):
    def __init__(self, hidden=192):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)
        self.epoch_losses = []

    def forward(self, x):
        return self.out(self.rnn(x.unsqueeze(-1))[0]).squeeze(-1)

    def training_step(self, batch, batch_idx):
        past, future = batch
        loss = nn.functional.mse_loss(self(past), future)
        self.epoch_losses.append(loss)  # expect: retained-graph
        return loss

    def on_train_epoch_end(self):
        print("epoch loss", torch.stack(self.epoch_losses).mean().item())
        self.epoch_losses.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)


if __name__ == "__main__":
    lightning.seed_everything(1)
    forecaster = Forecaster()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(forecaster, DataLoader(Waves(960), batch_size=32, shuffle=True))
