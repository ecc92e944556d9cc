"""A callback for the Trainer of Hugging Face's transformers::

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[ProfkitCallback()])
    trainer.train()
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from transformers import TrainerCallback

from profkit.integrations.training import TrainingCallback


class ProfkitCallback(TrainingCallback, TrainerCallback):  # type: ignore[misc]  # its types are not followed: they take mypy a minute
    """Records a few steps of the first training and says at its end what to change. Takes the settings of
    `profkit.profile`.

    A step is one of the optimizer, with all batches whose gradients it accumulates. Evaluation is not part of any step.
    Each rank records into a folder of its own; the process of rank 0 reports. The Trainer does not tell callbacks when
    a training fails; a program that goes on then, as a notebook does, ends the recording with ``with ProfkitCallback()
    as callback:`` around the training.
    """

    def __enter__(self) -> ProfkitCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._recording.finish(error)
        return False

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # the Trainer's signature
        self._recording.finish()  # of a training that failed
        self._recording.begin(reports=state.is_world_process_zero)

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._recording.resume()  # an evaluation was announced and another callback called it off

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._recording.end_step()
        self._pause_before_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._pause_before_evaluation(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        """The first batch of an evaluation that was not announced."""
        self._recording.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._recording.resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._recording.finish()
        self._recording.report()

    def _pause_before_evaluation(self, control: Any) -> None:
        """The Trainer's own callbacks come first and say what follows, but no callback is told that an evaluation
        begins."""
        if control.should_evaluate:
            self._recording.pause()
