"""The page: everything is escaped, nothing is fetched, and it works on light and dark screens and without its script.

Its Content-Security-Policy allows only its own style sheet and script, by their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from html import escape
from itertools import groupby
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from profkit.core.units import format_count, format_share
from profkit.diagnosis.verdict import conclude
from profkit.findings.pictures import Pictures
from profkit.findings.values import DeviceMemory, Diagnosis, VerdictKind, notable
from profkit.report import memory_timeline as timeline
from profkit.report import wording
from profkit.report.account_wording import HEADER, account_rows, account_sentences
from profkit.report.device import roofline as roofline_wording
from profkit.report.device import serving
from profkit.report.groups import group_cost, major_groups, minor_groups, minor_message, minor_place, other_places
from profkit.report.html import drawing, run_band
from profkit.report.html.editor import link_to
from profkit.report.html.environment import asset, digest, template
from profkit.report.html.ranks import render_ranks
from profkit.report.html.roofline import draw_roofline
from profkit.report.order import order_note, what_to_change
from profkit.report.run_wording import THE_RUN, phase_rows, run_line
from profkit.report.wording import printable


def render_html(diagnosis: Diagnosis, pages: Mapping[str, str] | None = None, editor: str = "") -> str:
    """The whole page. ``pages`` has each rule's page by its name, folded below its findings. ``editor`` is the template
    of links that open a line."""
    style, script = asset("report.css"), asset("report.js")
    pictures = diagnosis.pictures or Pictures()
    return _template().render(
        **_words(diagnosis),
        **_pictures(diagnosis, pictures),
        silent=_silent(diagnosis, pages or {}),
        devices=[_of_device(diagnosis, memory) for memory in diagnosis.memory],
        memory_lines=wording.MEMORY_LINES,
        pages=pages or {},
        link=partial(link_to, template=editor),
        account_header=HEADER,
        account_sentences=partial(account_sentences, diagnosis),
        pictures=pictures,
        ranks=render_ranks(diagnosis.launch),
        policy=policy(),
        style=Markup(style),  # noqa: S704  # ours, and without </style>
        script=Markup(script),  # noqa: S704
    )


def policy() -> str:
    """The Content-Security-Policy of every report, also for a server's headers."""
    style, script = digest(asset("report.css")), digest(asset("report.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


def _words(diagnosis: Diagnosis) -> dict[str, Any]:
    major = notable(diagnosis.findings)
    reasons = [
        (reason, wording.skipped_rules(rules), rules) for reason, rules in wording.group_by_reason(diagnosis.skipped)
    ]
    return {
        "verdict": wording.verdict(diagnosis),
        "headline": wording.headline(diagnosis),
        "to_do": wording.to_do(diagnosis),
        "subject": wording.run_subject(diagnosis),
        "run_line": run_line(diagnosis),
        "the_run": THE_RUN,
        "phase_lines": [row for row in phase_rows(diagnosis.whole_run) if row.place],
        "step_note": wording.step_note(diagnosis.timing),
        "bound_note": wording.bound_note(diagnosis.timing),
        "communication_note": wording.communication_note(diagnosis.timing),
        "what_to_change": what_to_change(major),
        "change_notes": [note for note in (wording.opportunities_note(major), order_note(major)) if note],
        "major": major_groups(diagnosis),
        "minor": minor_groups(diagnosis),
        "costliest": wording.costly_places(diagnosis),
        "costly_places": wording.COSTLY_PLACES,
        "costly_note": wording.COSTLY_NOTE,
        "kernels": wording.kernel_rows(diagnosis),
        "kernels_title": wording.KERNELS,
        "roofline": _roofline(diagnosis),
        "serving_title": serving.SERVING,
        "serving": [serving.sentences(one) for one in diagnosis.serving],
        "hottest": [
            (wording.HOT_LINES, wording.hot_lines(diagnosis)),
            (wording.HOT_OPERATORS, [(share, name, "") for share, name in wording.hot_operators(diagnosis)]),
        ],
        "workers": drawing.worker_bars(diagnosis),
        "more_workers": wording.worker_lines(diagnosis)[wording.MOST_WORKERS :],
        "facts": wording.run_facts(diagnosis),
        "health": [note for note in (*diagnosis.health, wording.ignored_note(diagnosis)) if note],
        "next_time": wording.skipped_lines(diagnosis.skipped)[1:],
        "skipped_count": format_count(len(diagnosis.skipped), "rule"),
        "skipped": [(reason, "" if few == ", ".join(rules) else few, rules) for reason, few, rules in reasons],
    }


def _roofline(diagnosis: Diagnosis) -> dict[str, Any] | None:
    found = diagnosis.roofline
    if found is None:
        return None
    return {
        "title": roofline_wording.ROOFLINE,
        "summary": roofline_wording.summary(found),
        "picture": draw_roofline(found),
        "tables": (
            ("Kind of work", roofline_wording.FAMILY_HEAD, roofline_wording.family_rows(found)),
            ("Launch", roofline_wording.POINT_HEAD, roofline_wording.point_rows(found)),
        ),
        "limits": roofline_wording.LIMITS,
    }


def _silent(diagnosis: Diagnosis, rules: Iterable[str]) -> list[str]:
    """The rules that looked and found nothing; none if the recording cannot be judged."""
    concluded = diagnosis.verdict or conclude(diagnosis)
    mentioned = {*diagnosis.skipped, *diagnosis.ignored, *(finding.rule for finding in diagnosis.findings)}
    return [] if concluded.kind is VerdictKind.CANNOT_JUDGE else sorted(set(rules) - mentioned)


def _of_device(diagnosis: Diagnosis, memory: DeviceMemory) -> dict[str, Any]:
    return {
        "title": wording.memory_title(diagnosis, memory),
        "figures": wording.memory_figures(memory),
        "picture": Markup(timeline.draw_timeline(memory)),  # noqa: S704  # escapes what it shows
        "ticks": timeline.ticks(memory),
        "span": timeline.span_note(memory),
        "parts": [
            (timeline.colour(label), label, f"{size}, {share}")
            for label, size, share, _ in wording.memory_parts(memory)
        ],
        "lines": wording.memory_lines(memory),
    }


def _run(diagnosis: Diagnosis) -> dict[str, Any]:
    whole = diagnosis.whole_run
    return {
        "phases": run_band.phases(whole),
        "run_band": run_band.band(whole),
        "run_ticks": run_band.ticks(whole),
        "run_recorded": run_band.recorded_part(whole),
        "run_marks": run_band.marked(diagnosis),
        "run_steps": run_band.steps(whole),
        "run_curves": run_band.curves(whole),
    }


def _pictures(diagnosis: Diagnosis, pictures: Pictures) -> dict[str, Any]:
    inner = "Kernels" if pictures.of_device else "Operators inside operators"
    tables = (("Modules", "module"), ("Lines", "line"), ("Operators", "operator"), (inner, "kernel"))
    return {
        "bars": drawing.verdict_bars(diagnosis),
        "stacked": drawing.stacked(diagnosis),
        **_run(diagnosis),
        "columns": drawing.columns(pictures),
        "column_ticks": drawing.column_ticks(pictures),
        "column_labels": drawing.column_labels(pictures),
        "stripes": drawing.stripes(pictures.lanes),
        "step_labels": drawing.step_labels(pictures),
        "marks": drawing.marks(diagnosis),
        "step_edges": drawing.step_edges(pictures),
        "memory": drawing.memory(pictures),
        "step_ends": drawing.step_ends(diagnosis),
        "leaves": drawing.leaves(pictures),
        "levels": drawing.explain_levels(pictures.levels, pictures.of_device),
        "depths": 1 + max((one.depth for one in pictures.branches), default=-1),
        "tables": [(title, drawing.table(pictures, level)) for title, level in tables],
        "height": drawing.LANE_HEIGHT,
        "mark_width": drawing.MARK_WIDTH,
    }


def render_frame(diagnosis: Diagnosis) -> str:
    """The page in a frame, for another page such as a notebook. Styles do not mix, and nothing inside may run or send
    anything."""
    page = escape(render_html(diagnosis), quote=True)
    style = "width: 100%; height: 36rem; border: 0; resize: vertical"
    return f'<iframe sandbox="" title="profkit" style="{style}" srcdoc="{page}"></iframe>'


def _pieces(line: str) -> list[tuple[bool, str]]:
    """A line of prose split at backticks, each piece with whether it is code."""
    return [(bool(at % 2), piece) for at, piece in enumerate(line.split("`")) if piece]


def _blocks(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Lines of prose, items of a list and code, each as far as they follow one another."""
    return [(kind, list(same)) for kind, same in groupby(lines, _kind_of)]


def _kind_of(line: str) -> str:
    return "list" if line.startswith("- ") else "code" if line.startswith(" ") else "prose"


@cache
def _template() -> Template:
    filters: dict[str, Callable[..., Any]] = {
        "shown": printable,
        "lines": wording.printable_lines,
        "line": lambda text: "".join(wording.printable_lines(wording.source_text(text))),
        "place": wording.place,
        "cost": group_cost,
        "alike": other_places,
        "minor_place": minor_place,
        "minor_message": minor_message,
        "changed": wording.change_lines,
        "share": format_share,
        "times": lambda count: format_count(count, "time"),
        "counted": lambda count: format_count(count, "rule"),
        "evidence": wording.evidence,
        "account_rows": account_rows,
        "whisker": drawing.whisker,
        "pieces": _pieces,
        "blocks": _blocks,
    }
    return template("report.html.j2", filters)
