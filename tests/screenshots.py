"""The pictures in README.md and docs: the report, a comparison and the tab in TensorBoard, of recordings that come with
profkit.

    python -m tests.screenshots

makes them anew in docs/pictures; it needs Chromium and playwright.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from profkit.diagnosis.compare import compare_paths
from profkit.diagnosis.pipeline import diagnose_path
from profkit.report.files import write_reports
from profkit.report.html.comparison import render_html

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "traces" / "recorded" / "nvidia-h100-80gb-hbm3"
SHOWN = ("dataloader-in-main-process", "hand-written-attention", "eager-pointwise-chain")
SIZE = {"width": 1100, "height": 1250}
SERVE = """
import sys, threading
from tensorboard import default, program
from profkit.integrations.tensorboard.tab import ProfkitTab
plugins = default.get_plugins()  # with those of installed packages: profkit's too, unless it runs from its sources
server = program.TensorBoard(plugins=[*plugins, *([] if ProfkitTab in plugins else [ProfkitTab])])
server.configure(("", "--logdir", sys.argv[1], "--port", "0", "--host", "127.0.0.1", "--load_fast", "false"))
print(server.launch(), flush=True)
threading.Event().wait()
"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Chromium on this machine."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def tensorboard_of(logdir: Path) -> Iterator[str]:
    """The address of a TensorBoard with profkit's tab."""
    command = [sys.executable, "-c", SERVE, str(logdir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _copy_runs(logdir: Path) -> Path:
    """Diagnosed copies of the recordings; the first is returned."""
    runs = [(logdir / name / variant, RECORDED / name / variant) for name in SHOWN for variant in ("pitfall", "fix")]
    for run, recorded in runs:
        shutil.copytree(recorded, run)
        write_reports(diagnose_path(run), run)
    return runs[0][0]


def _shoot(browser: Browser, logdir: Path, folder: Path) -> None:
    run = _copy_runs(logdir)
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto((run / "report.html").as_uri())
    page.screenshot(path=folder / "report.png")
    comparison = logdir / "comparison.html"
    comparison.write_text(render_html(compare_paths(run, run.with_name("fix"))), encoding="utf-8")
    page.set_viewport_size({**SIZE, "height": 700})
    page.goto(comparison.as_uri())
    page.screenshot(path=folder / "comparison.png")
    with tensorboard_of(logdir) as address:
        page = browser.new_page(viewport={**SIZE, "height": 900}, color_scheme="light")
        page.goto(f"{address}#profkit")
        tab = page.frame_locator("iframe")
        tab.get_by_role("button", name=run.relative_to(logdir).as_posix()).click(timeout=60_000)
        tab.frame_locator("iframe").locator("h1").wait_for(timeout=60_000)
        tab.locator("body").evaluate("body => body.ownerDocument.defaultView.scrollTo(0, 0)")
        page.screenshot(path=folder / "tensorboard.png")


def main() -> None:
    """Write the pictures."""
    folder = ROOT / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as started, tempfile.TemporaryDirectory() as logdir:
        browser = started.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        _shoot(browser, Path(logdir), folder)
        browser.close()


if __name__ == "__main__":
    main()
