"""Files of arrays are compared number by number; other bytes that were steady say that something has changed."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from profkit.diagnosis.fixing.arrays import read_arrays
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.results import compare_results
from profkit.diagnosis.fixing.trees import Written, snapshot, written_since
from profkit.diagnosis.fixing.turns import Run, Seen

torch = pytest.importorskip("torch")
VALUES = np.linspace(-1, 1, 50, dtype=np.float32)


def compared(folder: Path, name: str, *contents: bytes) -> Comparison:
    """Of two runs before a change and one after it, each of which writes one file."""
    runs = []
    for content in contents:
        (folder / name).unlink(missing_ok=True)
        before = snapshot(folder)
        (folder / name).write_bytes(content)
        runs.append(Run(0, "loss 0.5", "", Seen(run_ns=1), written_since(folder, before), {}))
    return compare_results(runs[:-1], runs[-1:])


def saved(folder: Path, kind: str, values: np.ndarray) -> bytes:
    path = folder / "made"
    with path.open("wb") as file:
        if kind == "npy":
            np.save(file, values)
        elif kind == "npz":
            np.savez(file, values=values)
        else:
            layer = torch.nn.Linear(50, 1)
            layer.weight.data[:] = torch.from_numpy(values)
            layer.bias.data[:] = 0
            torch.save({"model": layer.state_dict(), "whole": layer, "epoch": 3, "best": 0.25}, file)
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize("kind", ["npy", "npz", "pt"])
def test_arrays_may_differ_by_rounding_only(tmp_path, kind):
    once = saved(tmp_path, kind, VALUES)
    rounded, other = (saved(tmp_path, kind, VALUES * np.float32(factor)) for factor in (1 + 1e-6, 1.01))
    assert compared(tmp_path, "out", once, once, once).compared[-1] == "out (byte for byte)"
    found = compared(tmp_path, "out", once, once, rounded)
    assert found.is_same
    assert found.compared[-1].endswith(" of arrays in out")
    assert compared(tmp_path, "out", once, once, other).differs == "the arrays in out are others"
    assert compared(tmp_path, "out", once, other, rounded).left_out == ("out, whose numbers differ from run to run",)


def test_whole_numbers_shapes_and_what_stands_beside_arrays_are_equal(tmp_path):
    whole = saved(tmp_path, "npy", np.arange(5) + 10**6)
    assert compared(tmp_path, "a", whole, whole, saved(tmp_path, "npy", np.arange(5) + 10**6 + 1)).differs
    assert compared(tmp_path, "a", whole, whole, saved(tmp_path, "npy", np.arange(4) + 10**6)).differs
    with (tmp_path / "made").open("wb") as file:
        torch.save({"best": 0.75, "values": torch.from_numpy(VALUES)}, file)
    one = (tmp_path / "made").read_bytes()
    with (tmp_path / "made").open("wb") as file:
        torch.save({"best": 0.25, "values": torch.from_numpy(VALUES)}, file)
    other = (tmp_path / "made").read_bytes()
    assert compared(tmp_path, "a", one, one, other).differs == "a says 0.25 instead of 0.75"


def test_other_bytes_that_were_steady_are_not_passed_over(tmp_path):
    assert compared(tmp_path, "a", b"\xff1", b"\xff1", b"\xff2").unknown.startswith("a has other bytes than before")
    assert compared(tmp_path, "a", b"\xff1", b"\xff2", b"\xff3").left_out == ("a, whose bytes differ",)


def test_nothing_that_is_pickled_is_made(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(Hostile()))
    found = read_arrays(tmp_path / "a")
    assert found is not None
    assert "mkdir" in found.text
    assert not (tmp_path / "made").exists()


def test_damaged_files_are_bytes(tmp_path):
    for content in (b"\x93NUMPY", b"PK\x03\x04", b""):
        (tmp_path / "a").write_bytes(content)
        assert read_arrays(tmp_path / "a") is None


def test_names_that_differ_from_run_to_run_do_not_hide_the_others():
    def run(**files: str) -> Run:
        return Run(0, "a 1", "", Seen(run_ns=1), {name: Written(text, text) for name, text in files.items()}, {})

    before = [run(events1="x", result="loss 0.5"), run(events2="x", result="loss 0.5")]
    assert compare_results(before, [run(events3="x", result="loss 0.5")]).is_same
    assert compare_results(before, [run(events3="x", result="loss 0.7")]).differs == "result says 0.7 instead of 0.5"
    assert compare_results(before, [run(events3="x")]).differs == "the program no longer writes result"
