"""The packages, and the program of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
OPTIMIZER, BACKWARD, LOADER = "optimizer", "backward", "dataloader"


@dataclass(frozen=True)
class Package:
    """A package as the registry calls it. ``imported`` is the first name that its users import, ``environment`` the
    group of packages that it shares an environment with, and ``signal`` what should end a step of its program.
    ``requirements`` are what pip is asked for, by default the name. ``remark`` is what its row should say besides."""

    name: str
    imported: str
    environment: str = "most"
    signal: str = OPTIMIZER
    requirements: tuple[str, ...] = ()
    remark: str = ""

    @property
    def program(self) -> Path:
        return PROGRAMS / f"with_{self.imported}.py"


PACKAGES = (
    Package("transformers", "transformers"),
    Package("accelerate", "accelerate"),
    Package("diffusers", "diffusers"),
    Package("datasets", "datasets"),
    Package("peft", "peft"),
    Package("trl", "trl"),
    Package("lightning", "lightning"),
    Package("pytorch-lightning", "pytorch_lightning"),
    Package("pytorch-ignite", "ignite"),
    Package("fastai", "fastai", signal=LOADER, remark="Its optimizers are its own, so its batches end the steps."),
    Package("skorch", "skorch"),
    Package("timm", "timm"),
    Package("kornia", "kornia"),
    Package("monai", "monai"),
    Package("torchmetrics", "torchmetrics"),
    Package("torch_geometric", "torch_geometric"),
    Package("sentence-transformers", "sentence_transformers"),
    Package("stable-baselines3", "stable_baselines3"),
    Package("gymnasium", "gymnasium"),
    Package("botorch", "botorch", signal=BACKWARD),
    Package("gpytorch", "gpytorch"),
    Package("pyro-ppl", "pyro"),
    Package("optuna", "optuna"),
    Package("ray", "ray"),
    Package("deepspeed", "deepspeed", "kernels"),
    Package("bitsandbytes", "bitsandbytes"),
    Package("xformers", "xformers", "kernels"),
    Package("flash-attn", "flash_attn", "flash-attn"),
    Package("torchao", "torchao"),
    Package("torchtune", "torchtune", "torchtune", requirements=("torchtune", "torchao==0.15.0")),
    Package("torchrl", "torchrl"),
    Package("tensordict", "tensordict"),
    Package("einops", "einops"),
    Package("keras", "keras", signal=BACKWARD, remark="Keras updates weights itself: no `torch.optim` steps."),
    Package("jax", "jax"),
    Package("ultralytics", "ultralytics"),
    Package("segmentation-models-pytorch", "segmentation_models_pytorch"),
    Package("open_clip_torch", "open_clip"),
    Package("speechbrain", "speechbrain"),
    Package("pykeen", "pykeen"),
)
