"""profkit's tab: which runs it finds, what it serves, and a real TensorBoard with it in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from werkzeug.test import Client, TestResponse

from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import Diagnosis, Finding, Kind, RunSummary, Saving, Severity, Timing
from profkit.integrations.tensorboard import runs as runs_module
from profkit.integrations.tensorboard.plugin import Plugin
from profkit.integrations.tensorboard.runs import Runs, program_of, report_address, row_of
from profkit.integrations.tensorboard.tab import ProfkitTab
from profkit.report.files import write_reports
from profkit.report.json import render_json
from tests.forks import LONGEST_S

FINDING = Finding(
    "cat-in-loop", Kind.FAULT, Severity.HIGH, "It grows.", 1, 0.9, "Do not.", saving=Saving(4_000_000, 0.4, 0.3, 0.5)
)
TENSORBOARD = """
import json, sys
from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from tensorboard.plugins.core.core_plugin import CorePluginLoader
from types import SimpleNamespace
from profkit.integrations.tensorboard.tab import ProfkitTab

flags = SimpleNamespace(logdir=sys.argv[1], logdir_spec="", path_prefix="", inspect=False, generic_data="auto",
                        reload_task="auto", purge_orphaned_data=True, window_title="", max_reload_threads=1)
context = base_plugin.TBContext(logdir=sys.argv[1], flags=flags, window_title="")
loaders = [CorePluginLoader(), ProfkitTab()]
plugins = [loader.load(context) for loader in loaders]
app = application.TensorBoardWSGI([plugin for plugin in plugins if plugin is not None])
print(json.dumps([plugin.plugin_name for plugin in app._plugins]))
"""
HOSTILE = "<script>alert(1)</script>"


def write_run(
    folder: Path, *findings: Finding, step_ns: int = 10_000_000, day: int = 1, program: str = "train.py"
) -> Path:
    folder.mkdir(parents=True)
    run = RunSummary((program,), None, None, None, f"2026-01-0{day}T10:00:00")
    diagnosis = Diagnosis(run, Timing(4, step_ns, ""), findings, {}, ())
    (folder / "diagnosis.json").write_text(render_json(diagnosis))
    return folder


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write_run(tmp_path / "train" / "1", FINDING)
    write_run(tmp_path / "train" / "2", step_ns=6_000_000, day=2)
    return tmp_path


@pytest.fixture
def ask(logdir: Path) -> Iterator[object]:
    apps = Plugin(str(logdir)).get_plugin_apps()

    def get(route: str, **query: str) -> TestResponse:
        return Client(apps[route]).get("/", query_string=query)

    return get


def test_runs_are_found_by_their_diagnoses_and_named_below_the_log_directory(logdir: Path) -> None:
    (logdir / ".hidden").mkdir()
    shutil.copy(logdir / "train" / "1" / "diagnosis.json", logdir / ".hidden")
    assert set(Runs(str(logdir)).find()) == {"train/1", "train/2"}
    assert set(Runs(str(logdir / "train" / "1")).find()) == {"1"}
    assert set(Runs(f"a:{logdir}/train/1,bc:{logdir}/train").find()) == {"1", "2"}
    assert Runs(str(logdir / "absent")).find() == {}


def test_a_run_is_summarised_in_a_row(logdir: Path) -> None:
    row = row_of("train/1", logdir / "train" / "1")
    assert (row.step_ns, row.saving, row.worst) == (10_000_000, 0.4, "high")
    assert row.verdict == "1 fault costs 40 % (30 to 50) of the step: cat-in-loop"
    assert row_of("train/2", logdir / "train" / "2").worst == ""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("python", "/a/train.py", "--lr", "1"), "train.py"),
        (("/usr/bin/python3.12", "-m", "pkg.train"), "pkg.train"),
        (("train.py",), "train.py"),
        (("profkit", "diagnose", "cat-in-loop", "--variant=fix"), "cat-in-loop"),
        (("python",), ""),
        ((), ""),
    ],
)
def test_runs_of_one_program_belong_together_whatever_its_arguments(command: tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


def test_a_run_whose_diagnosis_is_broken_says_so(logdir: Path) -> None:
    (logdir / "train" / "1" / "diagnosis.json").write_text("{")
    row = row_of("train/1", logdir / "train" / "1")
    assert "is not a diagnosis that profkit wrote" in row.verdict
    assert row.step_ns is None


def test_the_list_and_the_report_are_served(ask) -> None:
    rows = ask("/runs").get_json()
    assert {row["name"] for row in rows} == {"train/1", "train/2"}
    report = ask("/report", run="train/1")
    assert report.status_code == 200
    assert report.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "cat-in-loop" in report.text


@pytest.mark.parametrize("name", ["", "../..", "/etc", "train", "train/3"])
def test_a_name_that_is_no_run_is_not_used_as_a_path(ask, name: str) -> None:
    assert ask("/report", run=name).status_code == 404
    assert ask("/compare", before=name, after="train/1").status_code == 404


@pytest.mark.parametrize("route", ["/index.js", "/runs", "/report", "/compare"])
def test_no_route_answers_another_host(logdir: Path, route: str) -> None:
    app = Plugin(str(logdir)).get_plugin_apps()[route]
    asked = {"run": "train/1", "before": "train/1", "after": "train/2"}
    refused = Client(app).get("/", query_string=asked, headers={"Host": "attacker.example"})
    assert refused.status_code == 403
    assert "train" not in refused.text
    assert Client(app).get("/", query_string=asked, headers={"Host": "localhost:6006"}).status_code != 403


def test_the_tab_answers_the_host_that_tensorboard_was_told_to_serve(logdir: Path) -> None:
    for flags, status in ((SimpleNamespace(host="gpu7", bind_all=False), 200), (SimpleNamespace(host=None), 403)):
        plugin = ProfkitTab().load(SimpleNamespace(logdir=str(logdir), flags=flags))
        answer = Client(plugin.get_plugin_apps()["/runs"]).get("/", headers={"Host": "gpu7:6006"})
        assert answer.status_code == status


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path), os.mkdir])
def test_what_is_no_diagnosis_is_told_and_costs_no_other_run(logdir: Path, make: Callable[[Path], None]) -> None:
    hostile = logdir / "hostile"
    hostile.mkdir()
    make(hostile / "diagnosis.json")
    apps = Plugin(str(logdir)).get_plugin_apps()
    rows = {row["name"]: row["verdict"] for row in Client(apps["/runs"]).get("/").get_json()}
    assert set(rows) == {"train/1", "train/2", "hostile"}
    assert re.search(r"is a (named pipe|link out of)|Is a directory", rows["hostile"])
    assert Client(apps["/report"]).get("/", query_string={"run": "hostile"}).status_code == 500
    assert Client(apps["/compare"]).get("/", query_string={"before": "hostile", "after": "train/1"}).status_code == 500


def test_comparing_runs_without_traces_gives_a_message(ask) -> None:
    answer = ask("/compare", before="train/1", after="train/2")
    assert answer.status_code == 500
    assert "holds no trace" in answer.text


def test_the_tab_is_active_if_there_is_a_run(logdir: Path, tmp_path: Path) -> None:
    def load(folder: Path) -> Plugin:
        return ProfkitTab().load(SimpleNamespace(logdir=str(folder), flags=SimpleNamespace()))

    assert load(logdir).is_active()
    assert not load(tmp_path / "absent").is_active()
    assert ProfkitTab().load(SimpleNamespace(logdir="", flags=SimpleNamespace())) is None


def test_the_plugin_that_tensorboard_loads_imports_next_to_nothing() -> None:
    code = "import tensorboard.plugins.base_plugin, sys; before = set(sys.modules)\n"
    code += "import profkit.integrations.tensorboard.tab\n"
    code += "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('profkit')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "rich", "click", "jinja2", "msgspec"} & set(loaded)


@pytest.mark.parametrize("name", ["a\x1b[2Jb\n", os.fsdecode(b"latin-\xe9"), "50% & more #1?", "<b>"])
def test_the_name_of_a_run_is_shown_as_text_and_its_report_opens(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / name, FINDING)
    apps = Plugin(str(tmp_path)).get_plugin_apps()
    (row,) = Client(apps["/runs"]).get("/").get_json()
    assert row["name"].isprintable()
    assert row["id"].isascii()
    assert Client(apps["/report"]).get("/", query_string={"run": row["id"]}).status_code == 200
    address = report_address(str(tmp_path), name)
    assert address is not None
    assert Client(apps["/report"]).get("/", query_string=address.partition("?")[2].partition("#")[0]).status_code == 200
    assert report_address(str(tmp_path), "another") is None


def test_only_changed_directories_are_read_again(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (logdir, logdir / "train", logdir / "train" / "1", logdir / "train" / "2"):
        os.utime(folder, (1, 1))
    read: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (read.append(Path(folder).name), scan(folder))[1])
    runs = Runs(str(logdir))
    assert set(runs.find()) == {"train/1", "train/2"}
    assert len(read) == 4
    assert set(runs.find()) == {"train/1", "train/2"}
    assert len(read) == 4
    write_run(logdir / "train" / "3")
    assert set(runs.find()) == {"train/1", "train/2", "train/3"}
    assert read[4:] == ["train", "3"]
    monkeypatch.undo()  # `shutil` reads directories too
    shutil.rmtree(logdir / "train" / "1")
    assert set(runs.find()) == {"train/2", "train/3"}


def test_a_directory_changed_just_now_is_read_each_time(logdir: Path) -> None:
    runs = Runs(str(logdir))
    runs.find()
    times = os.stat(logdir / "train")
    write_run(logdir / "train" / "3")
    os.utime(logdir / "train", ns=(times.st_atime_ns, times.st_mtime_ns))  # as on a clock too coarse to tell
    assert "train/3" in runs.find()


def test_the_number_of_directories_read_is_limited(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "_MOST_FOLDERS", 3)
    assert set(Runs(str(logdir)).find()) == {"train/1"}


def test_a_page_that_fails_inside_profkit_shows_one_line(
    ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PROFKIT_STRICT", raising=False)
    monkeypatch.setattr("profkit.report.html.page.render_html", lambda diagnosis: 1 / 0)
    answer = ask("/report", run="train/1")
    assert answer.status_code == 500
    assert answer.text.startswith("This page failed inside profkit (ZeroDivisionError at ")
    assert capsys.readouterr() == ("", "")


def test_a_tab_that_cannot_be_imported_is_left_out_with_one_line(
    logdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "profkit.integrations.tensorboard.plugin", None)
    assert ProfkitTab().load(SimpleNamespace(logdir=str(logdir), flags=SimpleNamespace())) is None
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == ["profkit shows no tab"]


@pytest.mark.slow
def test_tensorboard_still_runs_if_the_tab_cannot_be_imported(logdir: Path) -> None:
    code = "import sys; sys.modules['msgspec'] = None\n" + TENSORBOARD
    command = [sys.executable, "-W", "ignore", "-c", code, logdir]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(listed.stdout) == ["core"]
    assert listed.stderr.count("\n") == 1
    assert "profkit shows no tab: ModuleNotFoundError" in listed.stderr


@pytest.mark.slow
def test_tensorboard_shows_runs_and_reports_in_a_browser_without_the_internet(logdir: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    screenshots = pytest.importorskip("tests.screenshots")
    executable = screenshots.find_browser()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    write_run(logdir / HOSTILE.replace("/", "-"), replace(FINDING, message=HOSTILE))
    with screenshots.tensorboard_of(logdir) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}#profkit")
        tab = page.frame_locator("iframe")
        tab.get_by_role("button", name="train/1").click(timeout=1000 * LONGEST_S)
        report = tab.frame_locator("iframe")
        assert "cat-in-loop" in report.locator("h1").inner_text(timeout=1000 * LONGEST_S)
        assert tab.locator("tbody tr").count() == 3
        assert tab.locator("tbody script").count() == 0
        assert [url for url in asked if not url.startswith((address, "data:", "blob:", "about:"))] == []
        browser.close()


PAGE = """<!doctype html><html><head><title>profkit</title></head><body>
<script type="module">import { render } from "./index.js"; render();</script></body></html>"""


@pytest.fixture
def tab(logdir: Path) -> Iterator[object]:
    """The tab's page in Chromium, its requests answered by the plugin itself, at a width."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    screenshots = pytest.importorskip("tests.screenshots")
    executable = screenshots.find_browser()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    apps = Plugin(str(logdir)).get_plugin_apps()

    def answer(route: object) -> None:
        url = urlsplit(route.request.url)
        if url.path == "/":
            route.fulfill(body=PAGE, content_type="text/html")
        elif url.path in apps:
            served = Client(apps[url.path]).get("/", query_string=url.query)
            route.fulfill(status=served.status_code, body=served.data, headers=dict(served.headers))
        else:
            route.abort()

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])

        def opened(width: int) -> object:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.route("**/*", answer)
            page.goto("http://localhost/")
            page.wait_for_selector("tbody tr")
            return page

        yield opened
        browser.close()


def _names(page: object) -> list[str]:
    return page.locator("tbody .open").all_inner_texts()


def _widths(page: object) -> list[str]:
    return page.locator(".bar").evaluate_all("bars => bars.map((bar) => bar.style.width)")


def test_the_tab_sorts_filters_and_groups_by_program(logdir: Path, tab: Callable[[int], object]) -> None:
    write_run(logdir / "other" / "1", step_ns=20_000_000, day=3, program="b<i>.py")
    page = tab(1400)
    assert page.locator("h2").all_inner_texts() == ["b<i>.py", "train.py"]
    assert _names(page) == ["other/1", "train/2", "train/1"]
    assert _widths(page) == ["100%", "60%", "100%"], "a program's runs are compared with one another"
    page.get_by_label("Group by program").uncheck()
    assert sorted(_widths(page)) == ["100%", "30%", "50%"]
    page.get_by_role("button", name="step").click()
    assert (_names(page), page.locator("th[aria-sort=descending]").inner_text()) == (
        ["other/1", "train/1", "train/2"],
        "step",
    )
    page.get_by_label("Sort").select_option("shortest step first")
    assert _names(page) == ["train/2", "train/1", "other/1"]
    page.get_by_label("Filter").fill("train cat-in")
    assert (_names(page), page.get_by_role("status").inner_text()) == (["train/1"], "1 of 3 runs")


@pytest.mark.parametrize("width", [390, 1400])
def test_the_trend_of_a_program_s_step_times_is_told_and_drawn(
    logdir: Path, tab: Callable[[int], object], width: int
) -> None:
    write_run(logdir / "train" / "3", step_ns=5_000_000, day=3)
    page = tab(width)
    told = "A step takes 5.00 ms in the latest of 3 runs, 50 % shorter than in the first (10.0 ms, 2026-01-01 10:00)."
    assert page.locator("figcaption").all_inner_texts() == [told]
    assert page.locator("figure circle").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") == width
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe().run(page)
    assert [one["id"] for one in axe.response["violations"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1400])
def test_two_runs_are_compared_in_the_tab_on_small_and_large_screens(tmp_path: Path, width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    screenshots = pytest.importorskip("tests.screenshots")
    executable = screenshots.find_browser()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    for variant in ("pitfall", "fix"):
        shutil.copytree(screenshots.RECORDED / "dataloader-in-main-process" / variant, tmp_path / variant)
        write_reports(diagnose_path(tmp_path / variant), tmp_path / variant)
    write_run(tmp_path / ("a-name-without-a-place-to-break-it_" * 6), FINDING)
    with screenshots.tensorboard_of(tmp_path) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
        page.goto(f"{address}#profkit")
        tab = page.frame_locator("iframe")
        compare = tab.get_by_role("button", name="Compare the two chosen runs")
        compare.wait_for(timeout=1000 * LONGEST_S)
        assert compare.is_disabled()
        for variant in ("pitfall", "fix"):
            tab.get_by_label(f"choose {variant}").check()
        root = tab.locator("html")
        assert root.evaluate("root => root.scrollWidth <= root.clientWidth")
        assert tab.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == "rgb(22, 24, 27)"
        compare.click()
        compared = tab.frame_locator("iframe").locator("h1")
        assert compared.inner_text(timeout=1000 * LONGEST_S).startswith(
            "Better: a step takes 4.11 ms instead of 57.1 ms"
        )
        browser.close()
