"""Workers that draw other random numbers, or whose start draws one: such a change is offered apart."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from profkit.rules.changes import AltersNumbers
from tests.rules.changes.test_restructured import altered, changed

DATA = """
import random, torch
import numpy as np
def load(i):
    {}
class Data(Dataset):
    def __getitem__(self, i):
        return load(i)
def model(x):
    return torch.rand(3) + x
data = Data()
loader = DataLoader(data, 8, {})  # here
"""
FIX = "Pass num_workers=2"


@pytest.mark.parametrize("line", ["return i", "g = np.random.default_rng(i)\n    return g.random()", "return x.sum()"])
def test_the_same_order_and_samples_are_offered_as_they_are(line):
    after = changed("input-bound", DATA.format(line, "shuffle=True"), fix=FIX)
    assert "DataLoader(data, 8, shuffle=True, num_workers=2)" in after
    after = changed("input-bound", DATA.format(line, "drop_last=True"), fix=FIX)
    assert "drop_last=True, num_workers=2, persistent_workers=True)" in after
    after = changed("workers-respawned", DATA.format(line, "num_workers=2"))
    assert "num_workers=2, persistent_workers=True)" in after


@pytest.mark.parametrize(
    "line",
    [
        "return random.random()",
        "return torch.randn(3) + i",
        "return np.random.choice(9)",
        "return g.normal()",
        "g = np.random.default_rng()\n    return g.normal()",
        "return turn(i)\ndef turn(i):\n    return torch.rand(1)",
        "return i\nturn = T.Compose([T.RandomCrop(3)])",
    ],
)
def test_random_samples_are_offered_apart(line):
    after = altered("input-bound", DATA.format(line, "shuffle=True"), fix=FIX)
    assert "num_workers=2, persistent_workers=True)" in after
    assert "persistent_workers" in altered("workers-respawned", DATA.format(line, "num_workers=2"))


def test_a_transform_that_is_handed_over_is_read():
    text = "def crop(x):\n    return x[torch.randint(3, (1,))]\nwhole = Compose([crop])\ndata = Data(whole)\n"
    assert altered("input-bound", text + "loader = DataLoader(data)  # here\n", fix=FIX)
    assert altered("input-bound", text + "loader = DataLoader(Other(), collate_fn=crop)  # here\n", fix=FIX)
    assert changed("input-bound", text + "loader = DataLoader(Other())  # here\n", fix=FIX)


@pytest.mark.parametrize("drawn", ["shuffle=True", "shuffle=args.shuffle", "sampler=draw", "batch_sampler=draw"])
def test_workers_that_stay_change_the_order_of_later_epochs(drawn):
    with pytest.raises(AltersNumbers, match="later epochs draw other random numbers"):
        changed("workers-respawned", DATA.format("return i", f"num_workers=2, {drawn}"))


def test_each_iterator_draws_once_from_the_program():
    """What the change rests on: an iterator of new workers draws a seed."""
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=6)
    torch.manual_seed(0)
    iter(loader)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    assert not torch.equal(after, torch.get_rng_state())
