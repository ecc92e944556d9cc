"""When two runs computed the same, and when nothing can be said."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from profkit.diagnosis.fixing.results import compare_results
from profkit.diagnosis.fixing.trees import Written
from profkit.diagnosis.fixing.turns import Run, Seen


def run(output: str = "", end: list[float] | None = None, written: dict[str, str | None] | None = None, **seen) -> Run:
    parameters = {} if end is None else {"start.0.000000": np.zeros(2), "end.0.000000": np.array(end)}
    files = {name: Written(repr(text), text) for name, text in (written or {}).items()}
    return Run(0, output, "", Seen(**{"run_ns": 1, **seen}), files, parameters)


def test_equal_numbers_and_parameters_are_the_same():
    found = compare_results([run("loss 0.5\n", [1, 2])] * 3, [run("loss 0.5\n", [1, 2])] * 3)
    assert found.is_same
    assert found.compared == ("1 trained parameter (to the last bit)", "1 number in standard output")
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("loss 0.5000", "loss 0.5001", ""),
        ("loss 0.5000", "loss 0.5003", "standard output says 0.5003 instead of 0.5000"),
        ("loss 1234.5678", "loss 1234.6", ""),
        ("loss 0.5", "loss 0.6", "standard output says 0.6 instead of 0.5"),
        ("loss 0.99", "loss 1.00", "standard output says 1.00 instead of 0.99"),
        ("loss 1e-7", "loss 3e-7", "standard output says 3e-7 instead of 1e-7"),
        ("loss 1.5e-7", "loss 1.5e-7\n", "standard output has other words: its white space differs"),
        ("seen 512", "seen 513", "standard output says 513 instead of 512"),
        ("loss nan 1", "loss nan 1", ""),
        ("loss 1.0", "loss nan", "standard output says nan instead of 1.0"),
        ("loss 1.0", "cost 1.0", "standard output has other words: `cost 1.0` instead of `loss 1.0`"),
        ("a 1\nb 2", "a 1", "standard output has other words: 1 lines instead of 2"),
    ],
)
def test_printed_numbers_may_differ_by_rounding_only(before, after, differs):
    assert compare_results([run(before)] * 3, [run(after)] * 3).differs == differs


def test_what_varies_before_the_change_is_left_out_not_compared():
    before = [run(f"loss 0.5 address {number} took {number} s") for number in ("1.23", "1.31", "1.27")]
    found = compare_results(before, [run("loss 0.5 address 9.11 took 0.40 s")] * 3)
    assert found.is_same
    assert found.compared == ("1 number in standard output",)
    assert found.left_out == (
        "1 number in standard output that differ from run to run",
        "1 time in standard output",
    )


def test_a_program_that_only_prints_times_is_not_called_the_same():
    found = compare_results([run("took 1.5 s"), run("took 2.5 s")], [run("took 0.5 s")] * 2)
    assert found.unknown == "the program prints no number, writes no file and trains nothing that could be compared"
    assert not found.is_same


def test_parameters_are_compared_by_how_far_training_moved_them():
    before = [run(end=[3, 4])] * 3  # moved by 5
    near, far = run(end=[3, 4.004]), run(end=[3, 4.006])
    assert compare_results(before, [near]).is_same
    assert compare_results(before, [near]).compared == (
        "1 trained parameter (within 8e-04 of how far training moved them)",
    )
    assert (
        compare_results(before, [far]).differs
        == "the trained parameters differ by 0.1 % of how far training moved them"
    )


def test_parameters_that_differ_without_a_change_say_nothing():
    found = compare_results([run(end=[3, 4]), run(end=[4, 3])], [run(end=[3, 4])] * 2)
    assert found.unknown == "the trained parameters differ from run to run without a change: give --seed 0"


def test_other_parameters_and_those_without_a_number_differ():
    before = [run(end=[3, 4])] * 2
    assert compare_results(before, [run(end=[3, 4, 5])]).differs == "the optimizers have other parameters than before"
    assert compare_results(before, [run(end=[3, float("nan")])]).differs.startswith("the trained parameters differ")
    lost = [run(end=[3, float("nan")])] * 2
    assert compare_results(lost, lost).is_same


def test_random_numbers_without_a_seed_say_nothing():
    def drawing(state: str) -> Run:
        return run("mean 0.0", random_states={"torch": state, "random": state}, drawn=("torch",))

    assert compare_results([drawing("a"), drawing("b")], [drawing("c")]).unknown.startswith("random numbers of `torch`")
    assert compare_results([drawing("a"), drawing("a")], [drawing("a")]).is_same
    assert compare_results([drawing("a"), drawing("a")], [drawing("c")]).unknown.startswith("it draws other random")


def test_a_generator_without_a_seed_makes_runs_incomparable():
    def made(*places: str) -> Run:
        return run("mean 0.0", unseeded=places)

    found = compare_results([made("data.py:3", "data.py:9")] * 2, [made()])
    assert found.unknown == (
        "the random numbers made at data.py:3 and 1 more have no seed, and differ from run to run: "
        "set one, or give --seed 0"
    )
    assert "made at data.py:3 have no seed" in compare_results([made("data.py:3")] * 2, [made()]).unknown
    assert compare_results([made("data.py:3"), made()], [made()]).is_same  # in one of the runs alone


def test_files_are_compared_by_their_bytes_or_as_text():
    before = [run(written={"a.txt": "0.5000 m", "b.bin": None})] * 2
    assert compare_results(before, before).compared == ("a.txt (byte for byte)", "b.bin (byte for byte)")
    after = run(written={"a.txt": "0.5001 m", "b.bin": None})
    assert compare_results(before, [after]).compared == ("1 number in a.txt", "b.bin (byte for byte)")
    assert (
        compare_results(before, [run(written={"a.txt": "0.9 m", "b.bin": None})]).differs
        == "a.txt says 0.9 instead of 0.5000"
    )
    assert compare_results(before, [run()]).differs == "the program writes other files"
    named = [run(written={f"{number}.log": "1"}) for number in range(2)]
    assert compare_results(named, named).left_out == (
        "the files that it writes, which have other names from run to run",
    )


def test_a_program_that_ends_past_python_was_not_seen():
    gone = run("loss 0.5", run_ns=0)
    assert compare_results([gone], [run("loss 0.5")]).unknown.startswith("the program ends without Python's own exit")
    assert compare_results([run("a 1")], [gone]).differs == "the changed program ends without Python's own exit"


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("epoch 1 loss 0.5 3s", "epoch 1 loss 0.5 1s", ""),
        ("epoch 1 took 3.1 loss 0.5", "epoch 1 took 2.2 loss 0.5", ""),
        ("2026-11-28 10:01:59,123 loss 0.5", "2026-11-29 10:02:00,456 loss 0.5", ""),
        ("loss 0.5 at 812 samples/s", "loss 0.5 at 1200 samples/s", ""),
        ("3 steps", "2 steps", "standard output says 2 instead of 3"),
        ("time step 3", "time step 2", "standard output says 2 instead of 3"),
        ("5 m/s, 3 samples", "5 m/s, 2 samples", "standard output says 2 instead of 3"),
    ],
)
def test_how_long_something_took_is_no_result(before, after, differs):
    assert compare_results([run(before)] * 3, [run(after)] * 3).differs == differs


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("INFO acc 0.91\n", "INFO acc 0.91\n", ""),
        ("INFO acc 0.91\n", "INFO acc 0.51\n", "standard error says 0.51 instead of 0.91"),
        ("a.py:3: UserWarning: slow\n  x = f(3)\nINFO acc 0.91\n", "INFO acc 0.91\n", ""),
        ("a.py:3: UserWarning: slow\n  x = f(3)\nacc 0.91\n", "acc 0.5\n", "standard error says 0.5 instead of 0.91"),
        (" 50%|##   | 5/10 [00:01<00:01]\nacc 0.91\n", " 55%|##   | 6/10 [00:01<00:01]\nacc 0.91\n", ""),
        ("INFO acc 0.91\n", "INFO nothing\n", ""),
    ],
)  # fmt: skip
def test_what_is_logged_is_compared_without_warnings_and_progress(before, after, differs):
    old, new = (dataclasses.replace(run("loss 0.5"), errors=text) for text in (before, after))
    found = compare_results([old] * 3, [new] * 3)
    assert found.differs == differs
    assert bool(found.left_out) == ("nothing" in after)
