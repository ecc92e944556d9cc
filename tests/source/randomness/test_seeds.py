"""Which random numbers a file seeds, and which it draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.source.index import SourceFile, parsed_file
from profkit.source.randomness.seeds import NUMPY, PYTHON, TORCH, drawn, seeded


def read(folder: Path, text: str) -> SourceFile:
    (folder / "a.py").write_text(text)
    file = parsed_file(str(folder / "a.py"))
    assert file is not None
    return file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.manual_seed(0)", {TORCH: [1]}),
        ("torch.cuda.manual_seed_all(0)", {TORCH: [1]}),
        ("np.random.seed(0)", {NUMPY: [1]}),
        ("numpy.random.seed(seed)", {NUMPY: [1]}),
        ("random.seed(0)", {PYTHON: [1]}),
        ("L.seed_everything(0)", {TORCH: [1], NUMPY: [1], PYTHON: [1]}),
        ("torch.seed()", {}),
        ("random.seed()", {}),
        ("generator.manual_seed(0)", {}),
        ("rng.seed(0)", {}),
    ],
)
def test_seeds_count_by_whose_they_are(tmp_path, text, found):
    assert seeded(read(tmp_path, text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = torch.randn(3)", {TORCH: [1]}),
        ("x = torch.randn(3, generator=g)", {}),
        ("x = np.random.rand(3)", {NUMPY: [1]}),
        ("random.shuffle(items)", {PYTHON: [1]}),
        ("rng = np.random.default_rng(0)", {}),
        ("rng.standard_normal(3)", {}),
        ("x.random_()", {}),
        ("shuffle(items)", {}),
    ],
)
def test_draws_count_only_from_the_global_numbers(tmp_path, text, found):
    assert drawn(read(tmp_path, text)) == found
