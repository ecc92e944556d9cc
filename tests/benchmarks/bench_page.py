"""How large report.html of a large trace is, what it takes beyond the diagnosis, and how soon one can use it.

    python -m tests.benchmarks.bench_page TRACE [MEGABYTES] [RUNS]

TRACE is repeated in time up to MEGABYTES of uncompressed JSON (default 200) and diagnosed once in this process. Printed
are the time of the pictures and of the page, its size, and what a browser takes, RUNS times (default 5), from the
request until the page's script has run, and until a zoom by a button is painted.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from profkit.diagnosis import pipeline as diagnosing
from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import Diagnosis
from profkit.report.files import rule_pages
from profkit.report.html.page import render_html
from tests.screenshots import find_browser

_ZOOM = """() => new Promise(done => {
  const start = performance.now();
  document.querySelector("[data-do=in]").click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
_LOADED = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def main(source: Path, megabytes: float = 200, runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trace, page = Path(directory) / "large.json.gz", Path(directory) / "report.html"
        repeating = [sys.executable, str(Path(__file__).with_name("repeat_trace.py")), str(source), str(trace)]
        subprocess.run([*repeating, str(megabytes)], check=True)
        started = time.perf_counter()
        diagnosis, drawing = _diagnose(trace)
        whole = time.perf_counter() - started
        started = time.perf_counter()
        page.write_text(render_html(diagnosis, rule_pages()), encoding="utf-8")
        rendering = time.perf_counter() - started
        print(f"{source.name} repeated to {megabytes:.0f} MB, diagnosed in {whole:.1f} s")
        print(f"pictures {drawing:.2f} s, page {rendering:.2f} s, {page.stat().st_size / 1e3:.0f} kB")
        loads, zooms = zip(*_in_browser(page, runs), strict=True)
        print(f"script done {statistics.median(loads):.0f} ms (at most {max(loads):.0f}) after the request")
        print(f"a zoom is painted after {statistics.median(zooms):.0f} ms (at most {max(zooms):.0f})")


def _diagnose(trace: Path) -> tuple[Diagnosis, float]:
    """The diagnosis, and the seconds that its pictures took when nothing was derived for them yet."""
    taken: list[float] = []
    draw: Callable[..., Any] = diagnosing.draw

    def timed(*given: Any) -> Any:
        started = time.perf_counter()
        pictures = draw(*given)
        taken.append(time.perf_counter() - started)
        return pictures

    diagnosing.draw = timed
    return diagnose_path(trace), taken[0]


def _in_browser(page: Path, runs: int) -> list[tuple[float, float]]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        times = [_open(browser.new_page(), page) for _ in range(runs)]
        browser.close()
    return times


def _open(tab: Page, page: Path) -> tuple[float, float]:
    tab.goto(page.as_uri())
    return float(tab.evaluate(_LOADED)), float(tab.evaluate(_ZOOM))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(float(sys.argv[2]),) if len(sys.argv) > 2 else (), *map(int, sys.argv[3:]))
