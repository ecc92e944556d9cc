"""A training by the Trainer of transformers, and one that fails: ``outcome.json`` describes both. Works offline."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

OPTIMIZER_STEPS = 18


def main() -> None:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    warnings.simplefilter("ignore")  # of the libraries' own
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from profkit.collect.recorder.profiler import profile
    from profkit.integrations.transformers import ProfkitCallback

    tiny = BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    rows = [{"input_ids": torch.arange(8) % 32, "labels": torch.tensor(n % 2)} for n in range(OPTIMIZER_STEPS * 8)]

    class Evaluated(Trainer):  # type: ignore[misc]  # its types are not followed
        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            torch.rand(4).exp()
            return super().prediction_step(*args, **kwargs)

    def train(callback: ProfkitCallback, data: list[dict[str, Any]]) -> None:
        arguments = TrainingArguments(
            "out",
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            use_cpu=True,
            eval_strategy="steps",
            eval_steps=8,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_pin_memory=False,
        )
        model = BertForSequenceClassification(tiny)
        Evaluated(model, arguments, train_dataset=data, eval_dataset=rows[:8], callbacks=[callback]).train()

    callback = ProfkitCallback("trained", wait=1, active=2)
    train(callback, rows)
    outcome: dict[str, Any] = {"steps": callback.diagnosis.timing.steps if callback.diagnosis else None}
    try:
        with ProfkitCallback("failed", wait=1, active=2) as failing:
            train(failing, [*rows[:64], {"input_ids": torch.zeros(8).long(), "labels": torch.tensor(7)}])
    except IndexError as error:
        outcome["error"] = type(error).__name__
    outcome["left_on"] = profile._current is not None
    Path("outcome.json").write_text(json.dumps(outcome))
