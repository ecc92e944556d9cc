import pytorch_lightning as pl

import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.last = None

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.last = torch.nn.functional.mse_loss(self.net(x), y)
        return self.last

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


pl.seed_everything(0, verbose=False)
x = torch.randn(240, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
trainer = pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Regression()
trainer.fit(model, loader)
print(trainer.global_step, model.last.item())
