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

    A step is an optimizer step with all batches whose gradients it accumulates. Evaluation belongs to no step. Each
    rank records into its own folder; rank 0 reports. The Trainer does not tell callbacks when a training fails. In a
    program that goes on then, such as a notebook, put ``with ProfkitCallback() as callback:`` around the training to
    end the recording.
    """

    def __enter__(self) -> ProfkitCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._recording.finish(error)
        return False

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # the Trainer's signature
        self._recording.finish()  # that of a training that failed
        self._recording.begin(reports=state.is_world_process_zero)

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002  # as above
        self._recording.resume()  # in case another callback cancelled an evaluation

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
        """The Trainer tells no callback that an evaluation begins, but its own callbacks run first and set
        ``control``."""
        if control.should_evaluate:
            self._recording.pause()
