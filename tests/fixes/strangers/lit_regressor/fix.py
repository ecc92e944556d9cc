"""Depth of a lake from eight sounders, with Lightning."""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class DepthRegressor(L.LightningModule):
    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )
        self.training_step_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.huber_loss(self.net(x).squeeze(-1), y)
        self.training_step_outputs.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        epoch_average = torch.stack(self.training_step_outputs).mean()
        print(f"epoch {self.current_epoch}: {epoch_average.item():.5f}")
        self.training_step_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(42, verbose=False)
    x = torch.rand(40_960, 8)
    data = TensorDataset(x, x.pow(2).sum(-1))
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DepthRegressor(), DataLoader(data, batch_size=128))


if __name__ == "__main__":
    main()
