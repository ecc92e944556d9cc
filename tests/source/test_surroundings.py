"""What surrounds a line in its function."""

from __future__ import annotations

import pytest

from profkit.source.surroundings import Surroundings, surroundings_of

TEXT = """\
def train(model, loader):
    model.train()
    for epoch in range(3):
        rows = read()
        for x in loader:
            loss = model(x)
            for part in loss:
                part.log()
            loss.backward()
        with torch.no_grad():
            for x in rows:
                model(x)

def step(x):
    prepare(x)
    model(x).backward()

def evaluate(model):
    model.eval()
    for x in rows:
        model(x)

@torch.inference_mode()
def score(x):
    return model(x)

def fit(scheduler):
    for epoch in range(3):
        for x in rows:
            step(x)
        scheduler.step()

def adversarial(model, x):
    model.eval()
    model(x).backward()

@torch.no_grad()
def rollout(policy):
    for observation in rows:
        act(policy(observation))

def train_and_look(model):
    train(model)
    with torch.no_grad():
        accuracy = model(rows)

def test_latest(model):
    model(rows).backward()
    with torch.no_grad():
        contest(model(rows))

def assign(model):
    with torch.inference_mode():
        return model(rows)

for epoch in range(3):
    for x in rows:
        step(x)
    model.eval()
    with timer():
        with torch.no_grad():
            model(rows)
    model.train()
    with torch.no_grad():
        model(rows)

teacher.eval()
for x in rows:
    with torch.no_grad():
        soft = teacher(x)
    model(x).backward()

def distil(x):
    teacher.eval()
    with torch.no_grad():
        soft = teacher(x)
    model(x).backward()
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(TEXT, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (2, Surroundings()),
        (4, Surroundings(loop=3)),
        (6, Surroundings(loop=5, trains=True)),
        (8, Surroundings(loop=7, trains=True)),
        (9, Surroundings(loop=5, trains=True)),
        (12, Surroundings(loop=11, without_gradients=True)),
        (15, Surroundings(trains=True)),
        (21, Surroundings(loop=20, evaluates=True)),
        (25, Surroundings(evaluates=True)),
        (30, Surroundings(loop=29, trains=True)),
        (31, Surroundings(loop=28)),
        (35, Surroundings(trains=True)),
        (40, Surroundings(loop=39, without_gradients=True)),
        (45, Surroundings(evaluates=True)),
        (50, Surroundings(trains=True, without_gradients=True)),
        (54, Surroundings(without_gradients=True)),
        (62, Surroundings(loop=56, evaluates=True)),
        (65, Surroundings(loop=56, without_gradients=True)),
        (70, Surroundings(loop=68, trains=True, without_gradients=True)),
        (76, Surroundings(trains=True, without_gradients=True)),
        (1000, Surroundings()),
    ],
)
def test_loops_evaluations_and_training_are_seen_in_the_text(path, line, expected):
    assert surroundings_of(path, line) == expected


def test_nothing_is_known_of_a_file_that_is_not_there():
    assert surroundings_of("/no/such/file.py", 3) == Surroundings()
