"""Training frameworks, each with the real library: profkit finds the steps of the program."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from profkit.run.directory import load_run
from tests.collect.reading import is_inside, read_events, steps_of
from tests.integrations import accelerate_program, lightning_program, transformers_program
from tests.recordings import Kept, Recordings, all_code


def needs(library: str) -> None:
    """Skip if a library is not installed, without importing it, which would take as long as the test."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def run(recordings: Recordings, function: str, *arguments: str) -> Kept:
    kept = recordings.fork(f"tests.integrations.{function}", arguments, reads=all_code())
    assert kept.ended.returncode == 0, kept.ended.stderr
    return kept


def outcome_of(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "outcome.json").read_text())
    return content


def count_steps(directory: Path) -> int:
    """The steps of a recording, unprofiled and traced; the first is neither."""
    return len(load_run(directory).reference_step_ns) + len(steps_of(read_events(directory)))


def steps_with(directory: Path, operator: str) -> int:
    events = read_events(directory)
    found = [event for event in events if event["name"] == operator]
    return sum(is_inside(event, step) for event in found for step in steps_of(events).values())


@pytest.mark.parametrize("form", ["callback", "profiler"])
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_the_trainer_of_lightning_is_recorded_by_callback_or_profiler(
    package: str, form: str, recordings: Recordings
) -> None:
    needs(package.partition(".")[0])
    kept = run(recordings, "lightning_program:main", package)
    directory, batches = kept.directory / form, lightning_program.BATCHES
    content = outcome_of(directory)

    assert load_run(directory / "fit").step_signal == "step()"
    assert load_run(directory / "fit").notes == ()
    assert count_steps(directory / "fit") == batches - 1
    assert steps_with(directory / "fit", "aten::exp") == 0, "validation is no part of a step"
    assert count_steps(directory / "accumulated") == batches // 4 - 1
    assert load_run(directory / "accumulated").notes == ()

    source = Path(lightning_program.__file__).read_text().splitlines()
    (faulty,) = [n for n, line in enumerate(source, 1) if line.endswith("# expect: tensor-element-loop")]
    assert ["tensor-element-loop", lightning_program.__file__, faulty] in content["findings"]
    assert f"profkit: the report: {directory / 'fit' / 'report.html'}" in kept.ended.stderr
    assert (directory / "fit" / "report.html").is_file()

    assert (content["error"], content["left_on"]) == ("bad batch", False)
    notes = load_run(directory / "failed").notes
    assert any(note.startswith("the program failed: ValueError: bad batch") for note in notes)
    assert len(steps_of(read_events(directory / "failed"))) == 3
    assert content["copied"]


RANKS = """\
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from profkit.integrations.lightning import ProfkitCallback

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch, number):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.rand(48, 4, 16)), batch_size=None)
    Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[ProfkitCallback("run")],
            logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Model(), loader)
"""


def test_each_process_started_by_lightning_records_and_the_first_reports(recordings: Recordings) -> None:
    needs("lightning")
    kept = recordings.start(["train.py"], writes={"train.py": RANKS}, reads=all_code())
    assert kept.ended.returncode == 0, kept.ended.stderr
    for rank in (0, 1):
        identity = load_run(kept.directory / "run" / f"rank{rank}").identity
        assert identity is not None
        assert (identity.rank, identity.world_size, identity.local_rank) == (rank, 2, rank)
        assert len(steps_of(read_events(kept.directory / "run" / f"rank{rank}"))) == 5
    assert kept.ended.stderr.count("profkit: the report: ") == 1
    assert (kept.directory / "run" / "rank0" / "report.html").is_file()


def test_a_loop_by_lightning_fabric_has_its_steps_found(recordings: Recordings) -> None:
    needs("lightning")
    kept = run(recordings, "lightning_program:fabric")
    assert load_run(kept.directory / "fabric").step_signal == "optimizer"
    assert count_steps(kept.directory / "fabric") == lightning_program.BATCHES - 1


def test_the_trainer_of_transformers_is_recorded_by_its_callback(recordings: Recordings) -> None:
    needs("transformers")
    kept = run(recordings, "transformers_program:main")
    content = outcome_of(kept.directory)

    assert load_run(kept.directory / "trained").step_signal == "step()"
    assert load_run(kept.directory / "trained").notes == ()
    assert count_steps(kept.directory / "trained") == transformers_program.OPTIMIZER_STEPS - 1
    assert steps_with(kept.directory / "trained", "aten::exp") == 0, "an evaluation is no part of a step"
    assert content["steps"] == 2
    assert f"profkit: the report: {kept.directory / 'trained' / 'report.html'}" in kept.ended.stderr

    assert (content["error"], content["left_on"]) == ("IndexError", False)
    assert any(note.startswith("the program failed: IndexError") for note in load_run(kept.directory / "failed").notes)


def test_a_loop_by_accelerate_has_its_steps_found(recordings: Recordings) -> None:
    needs("accelerate")
    kept = run(recordings, "accelerate_program:main")
    described = load_run(kept.directory / "accelerated")
    assert described.step_signal == "optimizer"
    assert [use.name for use in described.optimizers] == ["AdamW"]
    assert [use.batch_size for use in described.loaders] == [8]
    assert count_steps(kept.directory / "accelerated") == accelerate_program.BATCHES // 2 - 1
