"""Generators that are made without a seed are told by their lines, and follow one that is given."""

from __future__ import annotations

import linecache
import random
import tempfile
from pathlib import Path

import numpy.random.bit_generator as generator
import pytest

from profkit.collect.launch.unseeded import Entropy


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a program's text while it is watched: what it leaves in ``drawn``, and the lines without a seed."""

    def run(text: str, seed: int | None = None, file: Path = tmp_path / "train.py") -> tuple[object, list[str]]:
        with monkeypatch.context() as patched:
            patched.setattr(random.Random, "seed", random.Random.seed)  # put back in the end
            patched.setattr(generator, "randbits", generator.randbits)
            entropy = Entropy(str(tmp_path), seed)
            entropy.watch()
            names: dict = {"tempfile": tempfile}
            whole = f"import random\nimport numpy as np\n{text}\n"
            lines = len(whole), None, whole.splitlines(keepends=True), str(file)
            patched.setitem(linecache.cache, str(file), lines)
            exec(compile(whole, str(file), "exec"), names)
            return names.get("drawn"), entropy.places

    return run


@pytest.mark.parametrize(
    "made",
    [
        "np.random.default_rng().random()",
        "np.random.default_rng(None).integers(1 << 40)",
        "np.random.RandomState().rand()",
        "random.Random().random()",
        "random.Random(None).random()",
    ],
)
def test_a_generator_without_a_seed_is_told_and_follows_one_that_is_given(run, made):
    text = f"drawn = {made}"
    (first, places), (second, _) = run(text), run(text)
    assert first != second
    assert places == ["train.py:3"]
    (third, told), (fourth, _), (other, _) = run(text, 1), run(text, 1), run(text, 2)
    assert third == fourth != other
    assert told == []


@pytest.mark.parametrize(
    "text",
    [
        "drawn = np.random.default_rng(3).random()",
        "drawn = random.Random(3).random()",
        "drawn = np.random.RandomState(3).rand()",
        "tempfile._RandomNameSequence().rng",  # names of files, by the standard library's own generator
    ],
)
def test_other_generators_are_left_alone(run, text):
    (first, places), (second, _) = run(text), run(text, 1)
    assert first == second
    assert places == []


def test_only_the_programs_own_lines_are_told_each_once(run, tmp_path):
    text = "for _ in range(3):\n    np.random.default_rng()\nnp.random.default_rng()"
    assert run(text)[1] == ["train.py:4", "train.py:5"]
    assert run(text, file=Path("/elsewhere/library.py"))[1] == []
    assert run("np.random.default_rng()", file=tmp_path / "data" / "noise.py")[1] == ["data/noise.py:3"]
