"""Which thread is recorded: the one that works, if the first one only waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from profkit.collect.boundaries import recorded_thread
from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.recorded_thread import CUT_OFF, MISSED, RecordedThread
from profkit.collect.recorder.profiler import profile
from profkit.collect.recorder.windows import WindowRequests
from profkit.run.directory import load_callsites, load_live, load_run
from tests.collect.guarded import run
from tests.collect.reading import is_inside, marks_around, read_events, steps_of
from tests.collect.training import train

OPTIMIZER = "optimizer"


def on_another_thread(action: Callable[[], Any]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def miss(thread: RecordedThread, signal: str) -> bool:
    return thread.misses(StepBoundary.here(signal))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The times by which a recorded thread is judged."""
    times = {"wall": 0.0, "own": 0.0, "process": 0.0, "crowded": 0.0, "own crowded": 0.0}
    monkeypatch.setattr(recorded_thread.time, "monotonic", lambda: times["wall"])
    monkeypatch.setattr(recorded_thread.time, "process_time", lambda: times["process"])
    monkeypatch.setattr(recorded_thread, "count_crowded_ns_of_all", lambda: int(times["crowded"] * 1e9))
    main = {threading.get_native_id(): "own crowded"}
    monkeypatch.setattr(recorded_thread, "count_crowded_ns", lambda thread: int(times[main[thread]] * 1e9))
    monkeypatch.setattr(RecordedThread, "_computed_s", lambda _: times["own"])
    return times


@pytest.mark.parametrize(("steps", "is_idle"), [(1, False), (2, True)])
def test_two_steps_of_an_optimizer_on_another_thread_make_this_one_idle(steps, is_idle, clock):
    thread, asked = RecordedThread(lambda: True, lambda: None), list[bool]()
    on_another_thread(lambda: asked.extend(miss(thread, OPTIMIZER) for _ in range(steps)))
    assert (thread.is_idle(), asked[-1]) == (is_idle, is_idle)
    assert thread.others_step


@pytest.mark.parametrize("name", ["dataloader", "forward", "epoch"])
def test_batches_and_calls_of_a_model_on_another_thread_do_not_make_it_idle(name, clock):
    thread = RecordedThread(lambda: True, lambda: None)
    on_another_thread(lambda: [miss(thread, name) for _ in range(9)])
    assert (thread.is_idle(), thread.others_step) == (False, False)


def test_if_the_thread_that_began_the_recording_ends_the_next_one_that_steps_is_recorded(tmp_path):
    """A thread may do no more than import PyTorch."""
    recordings: list[profile] = []

    def begin() -> None:
        recordings.append(profile(tmp_path / "run"))
        recordings[0].__enter__()

    on_another_thread(begin)
    train(12)
    recordings[0].__exit__(None, None, None)
    assert load_run(recordings[0].directory).step_signal == OPTIMIZER
    assert len(steps_of(read_events(recordings[0].directory))) >= 4


def test_other_threads_do_not_count_once_steps_end_on_the_recorded_one(clock):
    thread = RecordedThread(lambda: False, lambda: None)
    on_another_thread(lambda: [miss(thread, OPTIMIZER) for _ in range(9)])
    assert not thread.is_idle()


def test_signals_on_the_recorded_thread_are_not_missed():
    thread = RecordedThread(lambda: True, lambda: None)
    assert not miss(thread, OPTIMIZER)
    assert not thread.others_step


@pytest.mark.parametrize(
    ("own", "process", "crowded", "is_idle"),
    [(0.15, 0.75, 0.0, True), (0.16, 0.75, 0.0, False), (0.15, 0.74, 0.0, False), (0.15, 0.25, 0.5, True)],
)
def test_a_thread_that_waits_long_while_others_work_is_idle(own, process, crowded, is_idle, clock):
    """In 1.5 s it computes for at most a tenth of the time, and the process computes, or would, for at least half."""
    thread = RecordedThread(lambda: True, lambda: None)
    assert not thread.is_idle()
    clock.update(wall=1.5, own=own, process=process, crowded=crowded)
    assert thread.is_idle() == is_idle


@pytest.mark.parametrize(("own_crowded", "is_idle"), [(0.05, True), (0.06, False), (1.4, False)])
def test_a_thread_that_waits_for_a_busy_cpu_is_not_idle(own_crowded, is_idle, clock, monkeypatch):
    """Beside a dozen busy programs the main thread, the only one, computes for a fifteenth of 1.5 s."""
    monkeypatch.setattr(threading.main_thread(), "_native_id", 1)  # as in a fork, where Python keeps the parent's
    thread = RecordedThread(lambda: True, lambda: None)
    assert not thread.is_idle()
    clock.update({"wall": 1.5, "own": 0.1, "process": 0.1, "crowded": 1.4, "own crowded": own_crowded})
    assert thread.is_idle() == is_idle


def test_a_main_thread_that_never_checks_is_woken(clock):
    woken: list[float] = []
    thread = RecordedThread(lambda: True, lambda: None, lambda: woken.append(clock["wall"]))
    on_another_thread(lambda: [miss(thread, OPTIMIZER) for _ in range(2)])
    for clock["wall"] in (0.0, 0.01, 0.03, 0.05):
        assert thread.is_idle()
    assert woken == [0.03, 0.05]


def test_the_next_thread_that_ends_a_step_is_recorded_until_it_ends():
    ended: list[int] = []
    thread = RecordedThread(lambda: True, lambda: ended.append(threading.get_ident()))
    thread.release()
    assert not thread.is_current
    idents: list[int] = []

    def work() -> None:
        miss(thread, "forward")
        idents.append(threading.get_ident())
        assert thread.is_current
        assert not ended

    on_another_thread(work)
    assert ended == idents == [thread.ident]


THREADED = """\
def train_there(steps):
    kept = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (parameter * 2).sum()
        loss.backward()
        optimizer.step()
        kept.append(torch.ones(300_000) * loss)
    print("trained", len(kept))


worker = threading.Thread(target=train_there, args=({steps},))
worker.start()
{meanwhile}
worker.join()
"""


@pytest.mark.slow
@pytest.mark.races(why="steps that others make twice as long are recorded anew, fewer if the program ends")
@pytest.mark.parametrize("meanwhile", ["pass", "while worker.is_alive(): worker.join(0.01)"])
def test_training_on_another_thread_is_recorded_there(meanwhile, recordings):
    outcome = run(recordings, THREADED.format(steps=400, meanwhile=meanwhile))
    assert (outcome.status, "trained 400" in outcome.stdout) == (0, True), outcome.stderr
    events, sites = read_events(outcome.run), load_callsites(outcome.run)
    steps = steps_of(events)
    assert len(steps) == 5
    located = steps[min(steps)]
    sums = [event for event in events if event["name"] == "aten::sum" and is_inside(event, located)]
    assert {event["tid"] for event in sums} == {located["tid"]}
    assert sites[marks_around(sums[0], events)[-1]].source == "loss = (parameter * 2).sum()"
    assert load_run(outcome.run).step_signal == "optimizer"
    kept = {holder.path: holder for holder in load_live(outcome.run)[-1].holders}["kept"]
    assert kept.site is not None
    assert kept.site.source == "kept.append(torch.ones(300_000) * loss)"


@pytest.mark.slow
def test_a_thread_that_ends_before_its_recording_begins_leaves_it_to_the_next(recordings):
    """For example a warm-up before the main thread trains."""
    threaded = THREADED.format(steps=400, meanwhile="while worker.is_alive(): worker.join(0.01)")
    outcome = run(recordings, threaded + "train(2020)\n", "--wait", "2000")
    assert outcome.status == 0, outcome.stderr
    assert len(steps_of(read_events(outcome.run))) == 5
    assert load_run(outcome.run).step_signal == "optimizer"


SCORING = """\
model = torch.nn.Linear(64, 1)


def score():
    left = 100
    for i in range(1_000_000):
        model(torch.ones(4096, 64))
        left -= recorded.is_set()
        if torch.autograd._profiler_enabled():
            recorded.set()
        if not left:
            break
    print("scored", i > 100)


recorded = threading.Event()
worker = threading.Thread(target=score)
worker.start()
worker.join()
"""


@pytest.mark.slow
def test_a_model_called_on_another_thread_is_recorded_there(recordings):
    outcome = run(recordings, SCORING)
    assert (outcome.status, "scored True" in outcome.stdout) == (0, True), outcome.stderr
    assert load_run(outcome.run).step_signal == "forward"
    assert {e["name"] for e in read_events(outcome.run)} >= {"aten::linear", "ProfilerStep#2"}


ENDLESS = """\
done = []


def train_for_ever():
    while True:
        optimizer.zero_grad()
        (parameter * 2).sum().backward()
        optimizer.step()
        done.append(None)


worker = threading.Thread(target=train_for_ever, daemon=True)
worker.start()
while len(done) < 600:
    worker.join(0.01)
print("left it")
"""


@pytest.mark.slow
def test_a_thread_abandoned_amid_its_recording_costs_only_the_recording(recordings):
    outcome = run(recordings, ENDLESS, "--active", "1000000")
    assert "left it" in outcome.stdout
    assert load_run(outcome.run).exit_status == 0
    assert CUT_OFF in load_run(outcome.run).notes


@pytest.mark.slow
def test_the_programs_own_signal_handler_is_not_called(recordings):
    handler = "signal.signal(signal.SIGUSR1, lambda *_: print('signalled'))\n"
    outcome = run(recordings, handler + THREADED.format(steps=30, meanwhile="pass"))
    assert (outcome.status in (0, 2), "trained 30" in outcome.stdout) == (True, True), outcome.stderr
    assert "signalled" not in outcome.stdout.splitlines()  # the report may quote the handler's line


def test_missed_steps_on_another_thread_are_noted(tmp_path, monkeypatch):
    """Three steps are over before the recording can move to that thread."""
    monkeypatch.setattr(WindowRequests, "wake", lambda _: None)
    with profile(tmp_path):
        on_another_thread(lambda: train(3))
    assert MISSED in load_run(tmp_path).notes
