"""Looking at the main thread: what is written, in which process, and what the program notices."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.collect.launch import main_module
from profkit.collect.whole_run import watch as watching
from profkit.collect.whole_run.watch import RunWatch
from profkit.run.directory import ACCOUNT_FILE, CallSite
from profkit.run.whole_run import StackActivity, load_account
from tests.forks import LONGEST_S

OFTEN_S = 0.001


@pytest.fixture
def watch(tmp_path):
    made = RunWatch(lambda: tmp_path, (Path(__file__).parent,), interval_s=OFTEN_S)
    yield made
    made.finish()


def wait_for_looks(watch: RunWatch, count: int) -> None:
    while sum(seen.looks for seen in list(watch._stacks.values())) < count:  # others are added meanwhile
        sum(range(1000))


def test_the_parts_add_up_to_the_whole(watch, tmp_path):
    watch.start()
    wait_for_looks(watch, 20)
    watch.finish()
    account = load_account(tmp_path)
    assert account.is_over
    assert sum(stack.time_ns for stack in account.stacks) == account.until_ns - account.begun_ns
    assert sum(time_ns for column in account.columns for _, time_ns in column) == account.until_ns - account.begun_ns
    assert account.started_ns <= account.begun_ns
    assert any(account.places[at].site.function == "wait_for_looks" for stack in account.stacks for at in stack.places)


def test_the_programs_own_file_is_no_library_whatever_its_name(watch):
    own = compile("def send(): pass", str(Path(__file__).with_name("socket.py")), "exec").co_consts[0]
    judged = watch._judge(own)[1]
    assert judged is not None
    assert judged[0] is None
    assert judged[1].code is own


class _HashedSeldom(SimpleNamespace):
    """A code object, whose hash Python works out anew each time, from all of its constants."""

    hashed = 0

    def __hash__(self) -> int:
        type(self).hashed += 1
        return 1


def test_functions_are_hashed_once_and_not_at_each_look(watch):
    own = _HashedSeldom(co_filename=__file__, co_name="train", co_qualname="train")
    frames = [SimpleNamespace(f_code=own, f_lineno=line, f_lasti=0) for line in (1, 2, 1)]
    first = watch._read(frames)
    assert [line for _, line in first[1]] == [1, 2, 1]
    before = _HashedSeldom.hashed
    assert watch._read(frames) is first
    watch._add(first, 10, 10)
    watch._note_entries(first[1])
    assert before <= 1
    assert _HashedSeldom.hashed == before


def test_equal_functions_are_one(watch):
    """Those of a file that is executed again."""
    again = [compile("def train(): pass", __file__, "exec").co_consts[0] for _ in range(2)]
    stacks = {watch._read([SimpleNamespace(f_code=own, f_lineno=1, f_lasti=0)]) for own in again}
    assert again[0] is not again[1]
    assert len(stacks) == 1


def test_what_lies_below_the_program_is_not_its_own(watch):
    """A process may be a fork amid `subprocess`; a program that starts one waits for it."""
    texts = {"Popen": subprocess.__file__, "run": main_module.__file__, "train": __file__}
    own = {name: compile(f"def {name}(): pass", file, "exec").co_consts[0] for name, file in texts.items()}

    def stack(*names: str):
        return [SimpleNamespace(f_code=own[name], f_lineno=1, f_lasti=0) for name in names]

    assert watch._read(stack("train", "run", "Popen"))[0] is StackActivity.OTHER
    assert watch._read(stack("Popen", "train", "run"))[0] is StackActivity.CHILD


def test_a_look_at_an_instruction_without_a_line_tells_the_line_before(watch, tmp_path):
    """Python changes threads at jumps back, and that of this loop has no line."""
    code = wait_for_looks.__code__
    at = max(start for start, _, line in code.co_lines() if line is not None)
    frame = SimpleNamespace(f_code=code, f_lineno=None, f_lasti=at)
    watch.start()
    watch._entry(watch._read([frame])).looks += 1
    watch.finish()
    lines = {place.site.line for place in load_account(tmp_path).places}
    assert next(line for start, _, line in code.co_lines() if start == at) in lines


def frame_at(code, line, caller=None):
    at = next(start for start, _, number in code.co_lines() if number == line)
    return SimpleNamespace(f_code=code, f_lineno=line, f_lasti=at, f_back=caller)


@pytest.mark.parametrize(("share", "is_asked"), [(0.5, True), (0.97, True), (0.99, False)])
def test_the_kernel_is_asked_what_a_thread_sleeps_for_unless_it_hardly_can_have_slept(
    watch, monkeypatch, share, is_asked
):
    asked = []
    monkeypatch.setattr(watch, "_read", lambda _: (StackActivity.OTHER, ()))
    monkeypatch.setattr(watch._blocking, "read", lambda: asked.append(1))
    monkeypatch.setattr("profkit.collect.whole_run.watch.time.monotonic_ns", lambda: watch._origin_ns + 1_000_000)
    watch._cpu_ns = 5
    monkeypatch.setattr(watch, "_read_cpu_ns", lambda: 5 + int(share * 1_000_000))
    watch._look()
    assert bool(asked) == is_asked


def test_an_unforeseen_error_at_the_end_is_not_the_programs(tmp_path):
    def where() -> Path:
        raise KeyError("the directory")

    watch = RunWatch(where, (), interval_s=OFTEN_S)
    watch.start()
    watch.finish()
    assert not RunWatch.is_watching()


def test_the_looking_thread_is_none_of_the_programs(watch):
    before = threading.enumerate()
    watch.start()
    wait_for_looks(watch, 3)
    assert threading.enumerate() == before


def test_a_fork_pauses_it_and_goes_on_without_it(watch, tmp_path):
    watch.start()
    wait_for_looks(watch, 3)
    child = os.fork()
    if not child:
        os._exit(RunWatch.is_watching() or (tmp_path / ACCOUNT_FILE).exists())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_for_looks(watch, 10)
    assert RunWatch.is_watching()
    watch.finish()
    assert not RunWatch.is_watching()


def test_the_account_of_a_program_that_goes_on_is_kept(tmp_path):
    watch = RunWatch(lambda: tmp_path, (), interval_s=OFTEN_S)
    watch._due_ns = 0
    watch.start()
    while not (tmp_path / ACCOUNT_FILE).exists():
        sum(range(1000))
    account = load_account(tmp_path)
    watch.finish()
    assert not account.is_over
    assert load_account(tmp_path).is_over


@pytest.mark.parametrize(("run_s", "pause_s"), [(0, 0.01), (7, 0.01), (14, 0.02), (40, 0.05), (300, 0.05), (900, 0.1)])
def test_looks_come_less_often_as_the_run_goes_on_and_never_with_a_beat(tmp_path, run_s, pause_s):
    watch = RunWatch(lambda: tmp_path, ())
    watch._looked_ns = run_s * 10**9
    pauses = [watch._pause_s for _ in range(100)]
    assert sum(pauses) / len(pauses) == pytest.approx(pause_s, rel=0.02)
    assert 0.75 * pause_s <= min(pauses) < max(pauses) <= 1.25 * pause_s
    assert len(set(pauses)) == 100


@pytest.mark.parametrize(
    ("took_ns", "until_next_ns"), [(1_000_000, 2 * 10**9), (4_000_000, 8 * 10**9), (10**9, 60 * 10**9)]
)
def test_the_account_is_written_as_often_as_writing_costs_little(watch, monkeypatch, took_ns, until_next_ns):
    now = [0]
    monkeypatch.setattr(watching, "time", SimpleNamespace(thread_time_ns=lambda: now[0]))
    monkeypatch.setattr(watch, "_look", lambda: None)
    monkeypatch.setattr(watch, "_save", lambda: now.append(now.pop() + took_ns))
    watch._looked_ns = watch._due_ns
    watch._look_and_save()
    assert watch._due_ns - watch._looked_ns == until_next_ns


def test_the_programs_files_are_parsed_for_new_lines_alone(watch, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(watching, "_read_place", lambda *line: read.append(line) or watching.Place(CallSite("", 1, "")))
    function = watching.Function(wait_for_looks.__code__)
    first, second = ((function, line) for line in (1, 2))
    for lines in ((first,), (first, second)):
        watch._entry((StackActivity.OTHER, lines))
        watch._note_entries(lines)
        watch._save()
    assert read == [(function.code, 1), (function.code, 2)]
    assert [place.entries for place in load_account(tmp_path).places] == [2, 1]


def test_a_thread_that_is_joined_is_looked_at_with_its_own_time(watch, tmp_path):
    watch.start()

    def train() -> None:
        for _ in range(5):
            wait_for_looks(watch, sum(seen.looks for seen in list(watch._stacks.values())) + 10)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    watch.finish()
    account = load_account(tmp_path)
    within = [stack for stack in account.stacks if "train" in _functions(account, stack)]
    assert within
    assert all(_functions(account, stack)[0].startswith("test_") for stack in within)
    assert sum(stack.time_ns for stack in account.stacks) == account.until_ns - account.begun_ns
    assert sum(stack.cpu_ns for stack in within) > 0


def _functions(account, stack) -> list[str]:
    return [account.places[at].site.function.rpartition(".")[2] for at in stack.places]


def test_a_directory_that_is_gone_disturbs_nothing(tmp_path):
    watch = RunWatch(lambda: tmp_path / "gone", (), interval_s=OFTEN_S)
    watch._due_ns = 0
    watch.start()
    wait_for_looks(watch, 5)
    watch.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_its_own_ends_the_looking_in_silence(watch, monkeypatch, capfd):
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(watch, "_look", fail)
    watch.start()
    assert failed.wait(LONGEST_S)
    monkeypatch.undo()
    watch.finish()
    assert capfd.readouterr() == ("", "")
