import torch
from torch.nn import *

from .config import Config
from .data import videos
from .trainer import Trainer


def main(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    model = Sequential(AvgPool2d(8), Flatten(), Linear(3 * (cfg.data.size // 8) ** 2, 1))
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=cfg.lr))
    for _ in range(cfg.epochs):
        trainer.run_epoch(videos(cfg.data))


main(Config())
