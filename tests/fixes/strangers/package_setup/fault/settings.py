import torch

STEPS, BATCH = 80, 64

__all__ = ["BATCH", "STEPS", "set_up"]


def set_up(seed):
    torch.manual_seed(seed)
    torch.autograd.set_detect_anomaly(True)  # expect: debug-mode-on
