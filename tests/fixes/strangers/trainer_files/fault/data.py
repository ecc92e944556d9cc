import torch

from .config import DataConfig


def to_model_range(pixels):
    """The recorder stores doubles; the network takes floats in [-1, 1]."""
    return pixels.double().float() * 2 - 1  # expect: dtype-round-trip


def videos(cfg: DataConfig):
    generator = torch.Generator().manual_seed(1)
    for _ in range(cfg.frames):
        clip = torch.rand(cfg.batch, 3, cfg.size, cfg.size, generator=generator)
        target = clip.mean(dim=(1, 2, 3))
        yield to_model_range(clip), target
