"""One parameter that trains otherwise among many that do not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from profkit.diagnosis.fixing.trained import compare_parameters
from tests.recordings import Kept, Recordings

MANY = 2_000_000


def trained(scale: float, gradients: tuple[float, float] = (3.0, 0.2), rest: float = 1.0) -> dict[str, np.ndarray]:
    """A large weight that moves by one, and a single number beside it, as of a scale of logits."""
    return {
        "start.0.000000": np.zeros(MANY),
        "end.0.000000": np.full(MANY, rest),
        "start.0.000001": np.array([2.0]),
        "end.0.000001": np.array([scale]),
        "gradients.0": np.array(gradients),
    }


def differs(after: dict[str, np.ndarray], before: dict[str, np.ndarray] | None = None) -> str:
    before = before or trained(3.0)
    return compare_parameters([before, before], [after]).differs


def test_a_scale_that_trains_no_more_is_seen_beside_millions():
    gone = trained(2.0, (3.0, 0.0))
    assert differs(gone) == (
        "the gradient of parameter 2 of an optimizer has another length in its first step: 0 instead of 0.2"
    )
    assert differs(trained(2.2)) == "parameter 2 of an optimizer is trained otherwise than before"  # later than that
    assert differs(trained(2.0)) == "parameter 2 of an optimizer is trained in one version alone"
    assert differs(trained(3.0)) == ""


def test_rounding_is_no_difference():
    assert differs(trained(3.00001, (3.00001, 0.2000001))) == ""
    assert differs(trained(3.09)) == ""  # a tenth of what it moved, and no more
    assert differs(trained(3.11)) != ""


def test_a_gradient_that_is_rounding_alone_may_be_any():
    noise = trained(3.0, (3.0, 1e-7))
    assert differs(trained(2.0, (3.0, 8e-8)), noise) == ""
    assert differs(trained(2.0, (3.0, 0.0)), noise) == ""


def test_what_differs_between_runs_without_a_change_says_nothing():
    before, other = trained(3.0), trained(2.2)
    assert compare_parameters([before, other], [trained(2.0)]).differs == ""


@pytest.mark.parametrize("missing", ["gradients.0", "start.0.000001"])
def test_without_gradients_or_beginnings_all_together_are_compared(missing):
    before = {name: value for name, value in trained(3.0).items() if name != missing}
    after = {name: value for name, value in trained(2.0).items() if name != missing}
    assert compare_parameters([before, before], [after]).compared


def test_gradients_that_cannot_be_read_hide_no_others():
    unread = trained(2.0, (float("nan"), 0.2)), trained(2.0, (float("nan"), 0.1))
    assert "another length" in differs(unread[1], unread[0])


PROGRAM = """
import torch
torch.manual_seed(0)
model, scale, unused = torch.nn.Linear(3, 2), torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.ones(2))
table = torch.nn.Embedding(5, 2, sparse=True)
optimizer = torch.optim.SGD([*model.parameters(), scale, unused, *table.parameters()], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (scale * model(torch.ones(1, 3)) + table(torch.tensor([1, 1]))).sum().backward()
    optimizer.step()
"""


def run(recordings: Recordings, program: str) -> Kept:
    """One turn of the program, with what it leaves."""
    options = ["--result=result.json", "--", "prog.py"]
    kept = recordings.fork("profkit.collect.launch.turn:main", options, writes={"prog.py": program})
    assert kept.ended.returncode == 0, kept.ended.stderr
    return kept


def test_a_run_keeps_the_length_of_each_gradient_of_the_first_step(recordings):
    left = run(recordings, PROGRAM).directory
    assert json.loads((left / "result.json").read_text())["optimizers"] == 1
    with np.load(left / "parameters.npz") as arrays:
        lengths = arrays["gradients.0"]
    assert lengths[3] == 0.0
    assert (lengths[[0, 1, 2, 4]] > 0).all()


def kept(mean: float, calls: int, **more: float) -> dict[str, np.ndarray]:
    state = {"state.Net.norm.running_mean.4": np.full(4, mean), "count.Net.norm.num_batches_tracked.": np.array(calls)}
    return {**trained(3.0), **state, **{name: np.array(value) for name, value in more.items()}}


def test_a_batch_norm_that_is_called_less_often_is_seen_although_training_is_the_same():
    assert differs(kept(0.5, 40), kept(0.5, 40)) == ""
    assert differs(kept(0.502, 40), kept(0.5, 40)) == ""  # rounding of what it follows from
    assert differs(kept(0.5, 1), kept(0.5, 40)) == "`norm.num_batches_tracked` of a Net ends as another"
    assert differs(kept(0.1, 40), kept(0.5, 40)) == "`norm.running_mean` of a Net ends as another"


def test_buffers_that_only_one_version_has_or_that_are_not_steady_say_nothing():
    assert differs(trained(3.0), kept(0.5, 40)) == ""
    assert differs(kept(0.5, 40), trained(3.0)) == ""
    steady, other = kept(0.5, 40), kept(0.7, 41)
    assert compare_parameters([steady, other], [kept(0.9, 42)]).differs == ""


NORMED = """
import copy, torch
torch.manual_seed(0)
backbone = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
head = torch.nn.Linear(4, 1)
average = copy.deepcopy(head)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
x = torch.rand(8, 3)
for _ in range(5):
    features = backbone(x).detach()
    optimizer.zero_grad()
    head(features).sum().backward()
    optimizer.step()
"""


def test_a_run_keeps_what_no_optimizer_trains(recordings):
    with np.load(run(recordings, NORMED).directory / "parameters.npz") as arrays:
        names = {name for name in arrays.files if name.startswith(("state.", "count."))}
        assert int(arrays["count.Sequential.1.num_batches_tracked."]) == 5
    assert "state.Sequential.1.running_mean.4" in names
    assert "state.Linear.weight.1x4" in names  # the average's, which is no longer the trained one's


def late(scale: float, longest: float) -> dict[str, np.ndarray]:
    """The same, where the single number gets no gradient in the first step, and one of this length at most later."""
    return {**trained(scale, (3.0, 0.0)), "longest.0": np.array([3.0, longest])}


def test_a_parameter_that_is_used_later_is_looked_at_too():
    assert differs(late(2.2, 0.2), late(3.0, 0.2)) == "parameter 2 of an optimizer is trained otherwise than before"
    assert differs(late(3.01, 0.2), late(3.0, 0.2)) == ""
    assert differs(late(2.2, 1e-7), late(3.0, 1e-7)) == ""  # rounding


def test_decay_or_momentum_that_moves_a_parameter_in_one_version_alone_is_seen():
    said = "parameter 2 of an optimizer is trained in one version alone"
    assert differs(late(2.0, 0.0), late(3.0, 0.0)) == said
    assert differs(late(3.0, 0.0), late(2.0, 0.0)) == said
    assert differs(late(2.0, 0.0), late(2.0, 0.0)) == ""
    assert differs(late(2.0, 0.0), late(2.01, 1e-7)) == ""  # rounding
