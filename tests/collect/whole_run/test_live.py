"""What a watched program does now: the line and the file."""

from __future__ import annotations

from profkit.collect.whole_run.live import Live, Moment, Pace
from profkit.run.whole_run import DeviceSample, DeviceUse, StackActivity

S, MB = 10**9, 10**6
GPU = DeviceUse(1, "H100", samples=(DeviceSample(0, 0.1, 5), DeviceSample(S, 0.97, 6 * MB)))
SILENT = DeviceUse(2, "old", samples=(DeviceSample(0),))


def test_a_moment_is_one_line():
    moment = Moment(10 * S, "steps", Pace(1166, 6_840_000), 158.8, 606 * MB, (GPU, SILENT))
    assert moment.line == (
        "profkit: 10.0 s · steps · step 1,166 · 159 steps/s · 6.84 ms the last · 606 MB · GPU 1 97 % busy"
    )


def test_a_moment_as_openmetrics_text():
    moment = Moment(10 * S, "steps", Pace(1166, 6_840_000), 158.5, 606 * MB, (GPU, SILENT))
    lines = moment.metrics.splitlines()
    assert [line for line in lines if not line.startswith("# HELP") and not line.startswith("# TYPE")] == [
        "profkit_run_seconds 10",
        'profkit_phase{phase="steps"} 1',
        "profkit_steps_total 1166",
        "profkit_step_seconds 0.00684",
        "profkit_steps_per_second 158.5",
        "profkit_memory_bytes 606000000",
        'profkit_device_busy_ratio{device="1"} 0.97',
        'profkit_device_memory_bytes{device="1"} 6000000',
        "# EOF",
    ]


def test_what_is_not_known_is_left_out():
    moment = Moment(S, "imports", Pace(), 0.0, -1, (SILENT,))
    assert moment.line == "profkit: 1.00 s · imports"
    assert "steps" not in moment.metrics
    assert "device" not in moment.metrics
    assert "memory" not in moment.metrics


def test_the_phase_follows_the_stack_and_the_steps(tmp_path):
    paces = iter([Pace(), Pace(5, S), Pace(9, S), Pace(9, S), Pace(9, S)])
    live = Live(False, tmp_path / "run.prom", lambda: next(paces))
    activities = [StackActivity.OTHER, StackActivity.SAVING, StackActivity.OTHER, StackActivity.FORWARD, None]
    phases = []
    for at, activity in enumerate(activities):
        live.look(at * 5 * S, activity, -1, tuple)
        phases.append((tmp_path / "run.prom").read_text().split('phase="')[1].split('"')[0])
    assert phases == ["the program's own code", "checkpoints", "steps", "between steps", "over"]


def test_it_is_written_only_every_five_seconds_and_at_the_end(tmp_path):
    asked = []
    live = Live(False, tmp_path / "run.prom", lambda: asked.append(1) or Pace())
    for at in range(0, 10 * S, S // 10):
        live.look(at, StackActivity.OTHER, -1, tuple)
    assert len(asked) == 2
    live.look(10 * S - 1, None, -1, tuple)
    assert len(asked) == 3


def test_a_line_goes_to_a_terminal_only(capfd):
    Live(True, None, Pace).look(0, StackActivity.OTHER, -1, tuple)
    assert capfd.readouterr() == ("", "")


def test_a_file_is_replaced_at_once_and_leaves_no_other(tmp_path):
    path = tmp_path / "run.prom"
    live = Live(False, path, Pace)
    live.look(0, StackActivity.SAVING, -1, tuple)
    before = path.read_text()
    with path.open() as reader:
        live.look(9 * S, StackActivity.LOADING, -1, tuple)
        assert reader.read() == before
    assert path.read_text() != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_changes_nothing(tmp_path):
    Live(False, tmp_path / "gone" / "run.prom", Pace).look(0, StackActivity.OTHER, -1, tuple)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_took_the_files_place_is_left_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "run.prom").symlink_to(elsewhere)
    Live(False, tmp_path / "run.prom", Pace).look(0, StackActivity.OTHER, -1, tuple)
    assert (tmp_path / "run.prom").is_symlink()
    assert not elsewhere.exists()
