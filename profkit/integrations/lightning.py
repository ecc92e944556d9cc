"""A callback and a profiler for Lightning's Trainer, from ``lightning.pytorch`` or ``pytorch_lightning``. They do the
same, so one of them is enough::

    trainer = Trainer(callbacks=[ProfkitCallback()])
    trainer = Trainer(profiler=Profiler())
    trainer.fit(model, loader)

A loop written with Lightning Fabric needs none: `profkit.profile` finds its steps.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from profkit.integrations.training import TrainingCallback

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class _OfLightning(TrainingCallback):
    """What both have in common: an object that a Trainer of either package accepts, and the steps of its training."""

    _optimizer_steps = 0
    _lightnings: ClassVar[tuple[str, str]]
    """The module and the name of Lightning's base class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _OfLightning:  # noqa: ARG004  # those of `__init__`
        return object.__new__(_with_bases(cls, _base_classes(*cls._lightnings)))

    def __reduce__(self) -> tuple[Any, ...]:
        """The trainer may spawn processes, which cannot import the class that `__new__` made by its name."""
        kept = {name: value for name, value in vars(self).items() if name != _MODULE}
        return _restore, (type(self).__mro__[1], kept)

    def _begin(self, trainer: Any) -> None:
        self._optimizer_steps = trainer.global_step
        self._recording.begin(reports=trainer.is_global_zero)

    def _end_batch(self, trainer: Any, module: Any) -> None:
        accumulates = module.automatic_optimization and trainer.accumulate_grad_batches > 1
        if not accumulates or trainer.global_step != self._optimizer_steps:
            self._optimizer_steps = trainer.global_step
            self._recording.end_step()


class ProfkitCallback(_OfLightning):
    """Records a few steps of the first `fit` and says at its end what to change. Takes the settings of
    `profkit.profile`.

    A step is a batch, or with ``accumulate_grad_batches`` the batches of one optimizer step. Validation belongs to no
    step. Each rank records into its own folder; rank 0 reports.
    """

    _lightnings = ("callbacks", "Callback")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # Lightning's signature
        self._begin(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002  # as above
        self._end_batch(trainer, pl_module)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        self._recording.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        self._recording.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # as above
        self._recording.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002  # as above
        """Lightning calls no `teardown` when a training fails."""
        self._recording.finish(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # as above
        """Report here, because the progress bars are gone by now."""
        self._recording.finish()
        if stage == "fit":
            self._recording.report()


class Profiler(_OfLightning):
    """`ProfkitCallback` as the Trainer's ``profiler``, with the same steps and settings. ``directory`` is the run
    directory; Lightning's ``dirpath`` is not used."""

    _lightnings = ("profilers", "Profiler")
    _handled: BaseException | None = None
    """The exception that the program around the training was handling, which is no failure of the training."""
    _stage: str | None
    """``fit``, ``validate`` …, kept by Lightning's own class in `setup`."""

    def __init__(self, directory: str | Path | None = None, **settings: Any) -> None:
        for base in _base_classes(*self._lightnings):
            base.__init__(self)  # type: ignore[misc]  # `__new__` made this object's class from them
        super().__init__(directory, **settings)

    def start(self, action_name: str) -> None:
        if action_name == _EPOCH:
            self._handled = sys.exc_info()[1]
            self._begin(getattr(self, _MODULE).trainer)
        elif _is_hook(action_name, "on_validation_start"):
            self._recording.pause()
        elif _is_hook(action_name, "on_train_end"):
            self._recording.finish()

    def stop(self, action_name: str) -> None:
        error = sys.exc_info()[1]
        failed = error is not None and error is not self._handled
        if action_name == _BATCH and not failed:
            module = getattr(self, _MODULE)
            self._end_batch(module.trainer, module)
        elif _is_hook(action_name, "on_validation_end"):
            self._recording.resume()
        elif action_name == _EPOCH and failed:  # Lightning does not tell profilers about failures
            self._recording.finish(error)

    def describe(self) -> None:
        """Called at the end of a `fit`, a `validate` or the like that did not fail."""
        self._recording.finish()
        if self._stage == "fit":
            self._recording.report()


_EPOCH, _BATCH = "run_training_epoch", "run_training_batch"
"""Actions other than hooks that a Trainer reports to its profiler."""
_MODULE = "_lightning_module"
"""The attribute in which the Trainer leaves its module before it reports anything."""


def _is_hook(action_name: str, hook: str) -> bool:
    """Whether it is the module's hook: callbacks and strategies have hooks of the same name."""
    return action_name.startswith("[LightningModule]") and action_name.endswith(f".{hook}")


def _base_classes(module: str, name: str) -> tuple[type, ...]:
    """The class of that name from each package that the program has imported: a Trainer only accepts that of its own
    package, and both may be there. Raises `ImportError` if neither is installed."""
    packages = [package for package in _PACKAGES if package in sys.modules]
    packages = packages or [package for package in _PACKAGES if find_spec(package.partition(".")[0]) is not None][:1]
    if not packages:
        raise ImportError(f"profkit.integrations.lightning needs {' or '.join(_PACKAGES)}")
    return tuple(getattr(importlib.import_module(f"{package}.{module}"), name) for package in packages)


def _with_bases(kind: type[_OfLightning], bases: tuple[type, ...]) -> type[_OfLightning]:
    return type(kind.__name__, (kind, *bases), {"__doc__": kind.__doc__, "__module__": kind.__module__})


def _restore(kind: type[_OfLightning], state: dict[str, Any]) -> _OfLightning:
    restored = kind.__new__(kind)
    vars(restored).update(state)
    return restored
