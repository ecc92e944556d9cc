"""Trainings by Lightning: ``lightning_program PACKAGE``, recorded by callback and by profiler. Each has a folder, whose
``outcome.json`` describes the result."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 24


def make_model(framework: Any, fails_at: int | None = None) -> Any:
    class Model(framework.LightningModule):  # type: ignore[misc, name-defined]  # one of two packages
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 1)

        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            if number == fails_at:
                raise ValueError("bad batch")
            penalty = torch.zeros(())
            for row in batch[0]:
                penalty = penalty + row.sum()  # expect: tensor-element-loop
            return self.layer(batch[0]).square().mean() + 1e-6 * penalty

        def validation_step(self, batch: list[Tensor], number: int) -> None:
            self.layer(batch[0]).exp()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Model()


def main() -> None:
    warnings.simplefilter("ignore")  # of the number of workers and of loggers, which these trainings do without
    from profkit.integrations import lightning

    framework = importlib.import_module(sys.argv[1])
    for form, kind in {"callback": lightning.ProfkitCallback, "profiler": lightning.Profiler}.items():
        Path(form).mkdir()
        _train(framework, form, kind)


def _train(framework: Any, form: str, kind: Any) -> None:
    batches = torch.rand(BATCHES, 64, 16)
    loader, few = (DataLoader(TensorDataset(data), batch_size=None) for data in (batches, batches[:2]))

    def fit(name: str, fails_at: int | None = None, **settings: Any) -> Any:
        recorder = kind(f"{form}/{name}", wait=1, active=2)
        given = {"callbacks": [recorder]} if form == "callback" else {"profiler": recorder}
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = framework.Trainer(max_epochs=1, accelerator="cpu", **given, **quiet, **settings)
        trainer.fit(make_model(framework, fails_at), loader, few)
        return recorder

    fitted = fit("fit", val_check_interval=8)
    outcome: dict[str, Any] = {"findings": list(map(_describe, fitted.diagnosis.findings))}
    try:
        raise KeyError("another")
    except KeyError:  # a training may be what a program does about an error
        fit("accumulated", accumulate_grad_batches=4)
    try:
        fit("failed", fails_at=10)
    except ValueError as error:
        outcome["error"] = str(error)
    from profkit.collect.recorder.profiler import profile

    outcome["left_on"] = profile._current is not None
    copy = pickle.loads(pickle.dumps(kind("copy")))
    own = framework.Callback if form == "callback" else framework.profilers.Profiler
    outcome["copied"] = isinstance(copy, own) and isinstance(copy, kind)
    Path(form, "outcome.json").write_text(json.dumps(outcome))


def _describe(finding: Any) -> tuple[Any, ...]:
    place = finding.location
    return finding.rule, place and place.file, place and place.line


def fabric() -> None:
    """A loop by Lightning Fabric that does not use profkit."""
    warnings.simplefilter("ignore")  # as above
    from lightning.fabric import Fabric

    import profkit

    runner = Fabric(accelerator="cpu", devices=1)
    layer = torch.nn.Linear(16, 1)
    model, optimizer = runner.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.01))
    loader = runner.setup_dataloaders(DataLoader(TensorDataset(torch.rand(BATCHES * 8, 16)), batch_size=8))
    # From a step on that is named, so that steps which a busy machine makes longer are not taken for cycles.
    with profkit.profile("fabric", at_step=1, wait=1, active=2):
        for (batch,) in loader:
            optimizer.zero_grad()
            runner.backward(model(batch).square().mean())
            optimizer.step()
