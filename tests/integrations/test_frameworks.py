"""Training frameworks, each with the real library: the steps that are found are the program's."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from profkit.run import load_run
from tests.collect.reading import is_inside, read_events, steps_of
from tests.integrations import accelerate_program, lightning_program, transformers_program
from tests.recordings import Kept, Recordings, all_code


def needs(library: str) -> None:
    """Skip where a library cannot be installed. To import it here would take as long as the test."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def run(recordings: Recordings, function: str, *arguments: str) -> Kept:
    kept = recordings.fork(f"tests.integrations.{function}", arguments, reads=all_code())
    assert kept.ended.returncode == 0, kept.ended.stderr
    return kept


def told(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "told.json").read_text())
    return content


def count_steps(directory: Path) -> int:
    """The steps of a recording: those that passed unprofiled and those in the trace; the first is neither."""
    return len(load_run(directory).reference_step_ns) + len(steps_of(read_events(directory)))


def steps_with(directory: Path, operator: str) -> int:
    events = read_events(directory)
    found = [event for event in events if event["name"] == operator]
    return sum(is_inside(event, step) for event in found for step in steps_of(events).values())


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightnings_trainer_is_recorded_by_its_callback(package: str, recordings: Recordings) -> None:
    needs(package.partition(".")[0])
    kept = run(recordings, "lightning_program:main", package)
    content, batches = told(kept.directory), lightning_program.BATCHES

    assert load_run(kept.directory / "fit").step_signal == "step()"
    assert load_run(kept.directory / "fit").notes == ()
    assert count_steps(kept.directory / "fit") == batches - 1
    assert steps_with(kept.directory / "fit", "aten::exp") == 0, "validation is no part of a step"
    assert count_steps(kept.directory / "accumulated") == batches // 4 - 1

    source = Path(lightning_program.__file__).read_text().splitlines()
    (faulty,) = [n for n, line in enumerate(source, 1) if line.endswith("# expect: tensor-element-loop")]
    assert ["tensor-element-loop", lightning_program.__file__, faulty] in content["findings"]
    assert f"profkit: the report: {kept.directory / 'fit' / 'report.html'}" in kept.ended.stderr
    assert (kept.directory / "fit" / "report.html").is_file()

    assert (content["error"], content["left_on"]) == ("bad batch", False)
    notes = load_run(kept.directory / "failed").notes
    assert any(note.startswith("the program failed: ValueError: bad batch") for note in notes)
    assert len(steps_of(read_events(kept.directory / "failed"))) == 3
    assert content["copied"]


def test_a_loop_by_lightning_fabric_has_its_steps_found(recordings: Recordings) -> None:
    needs("lightning")
    kept = run(recordings, "lightning_program:fabric")
    assert load_run(kept.directory / "fabric").step_signal == "optimizer"
    assert count_steps(kept.directory / "fabric") == lightning_program.BATCHES - 1


def test_the_trainer_of_transformers_is_recorded_by_its_callback(recordings: Recordings) -> None:
    needs("transformers")
    kept = run(recordings, "transformers_program:main")
    content = told(kept.directory)

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
