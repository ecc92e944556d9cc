"""A callback for Lightning's Trainer, of ``lightning.pytorch`` and of ``pytorch_lightning``::

    trainer = Trainer(callbacks=[ProfkitCallback()])
    trainer.fit(model, loader)

A loop written with Lightning Fabric needs none: `profkit.profile` finds its steps.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any

from profkit.integrations.training import TrainingCallback

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class ProfkitCallback(TrainingCallback):
    """Records a few steps of the first `fit` and says at its end what to change. Takes the settings of
    `profkit.profile`.

    A step is a batch, or with ``accumulate_grad_batches`` the batches of one optimizer step. Validation is not part of
    any step. Only the process of rank 0 is recorded.
    """

    _optimizer_steps = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> ProfkitCallback:  # noqa: ARG004  # those of `__init__`
        return object.__new__(_with_bases(cls, _base_classes()))

    def __reduce__(self) -> tuple[Any, ...]:
        """The trainer's processes may be spawned, and they cannot import the class that `__new__` made by name."""
        return _restore, (type(self).__mro__[1], vars(self))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002  # Lightning's signature
        if trainer.is_global_zero:
            self._optimizer_steps = trainer.global_step
            self._recording.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002  # as above
        accumulates = pl_module.automatic_optimization and trainer.accumulate_grad_batches > 1
        if not accumulates or trainer.global_step != self._optimizer_steps:
            self._optimizer_steps = trainer.global_step
            self._recording.end_step()

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
        """The progress bars are gone by now."""
        self._recording.finish()
        if stage == "fit":
            self._recording.report()


def _base_classes() -> tuple[type, ...]:
    """The ``Callback`` of each of the packages that the program has imported. Both may be there, and a Trainer only
    knows that of its own package. Raises `ImportError` if neither is installed."""
    names = [name for name in _PACKAGES if name in sys.modules]
    names = names or [name for name in _PACKAGES if find_spec(name.partition(".")[0]) is not None][:1]
    if not names:
        raise ImportError(f"ProfkitCallback needs {' or '.join(_PACKAGES)}")
    return tuple(importlib.import_module(name).Callback for name in names)


def _with_bases(kind: type[ProfkitCallback], bases: tuple[type, ...]) -> type[ProfkitCallback]:
    return type(kind.__name__, (kind, *bases), {"__doc__": kind.__doc__, "__module__": kind.__module__})


def _restore(kind: type[ProfkitCallback], state: dict[str, Any]) -> ProfkitCallback:
    restored = kind.__new__(kind)
    vars(restored).update(state)
    return restored
