"""The report as one self-contained page: no script, nothing fetched, everything escaped, for light and dark screens.

The page's Content-Security-Policy forbids everything but the style sheet, which it allows by hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from profkit.findings import DeviceMemory, Diagnosis, Finding, Kind, Location
from profkit.report.html_style import STYLE, STYLE_DIGEST
from profkit.report.memory_timeline import draw_timeline
from profkit.report.wording import (
    HOT_LINES,
    HOT_OPERATORS,
    MEMORY_LINES,
    WHAT_TO_CHANGE,
    bound_note,
    cost,
    group_by_reason,
    hot_lines,
    hot_operators,
    major_findings,
    memory_figures,
    memory_lines,
    memory_parts,
    memory_title,
    minor_findings,
    opportunities_note,
    place,
    printable,
    printable_lines,
    run_facts,
    skipped_rules,
    step_note,
    verdict,
    worker_lines,
)
from profkit.units import format_count, format_share, format_time


def render_html(diagnosis: Diagnosis, pages: Mapping[str, str] | None = None) -> str:
    """The whole page. ``pages`` maps a rule's name to its page, shown folded beside each finding."""
    known, major = pages or {}, major_findings(diagnosis)
    sections = (
        _findings(WHAT_TO_CHANGE, opportunities_note(major), major, known),
        _findings("For your information", "Too small to act on for speed alone.", minor_findings(diagnosis), known),
        _hottest(diagnosis),
        *(_memory(memory_title(diagnosis, memory), memory) for memory in diagnosis.memory),
        _skipped(diagnosis),
        _shares(diagnosis),
        _workers(diagnosis),
        _recording(diagnosis),
    )
    body = "\n".join(section for section in sections if section)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{_text(verdict(diagnosis))}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<p class="tool">profkit</p>
<h1>{_text(verdict(diagnosis))}</h1>
<p>{_text(step_note(diagnosis.timing))}</p>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def render_frame(diagnosis: Diagnosis) -> str:
    """The page in a frame, for use inside another page such as a notebook: their styles do not mix, and nothing in the
    frame may run or be sent."""
    page = escape(render_html(diagnosis), quote=True)
    style = "width: 100%; height: 36rem; border: 0; resize: vertical"
    return f'<iframe sandbox="" title="profkit" style="{style}" srcdoc="{page}"></iframe>'


def _policy() -> str:
    return f"default-src 'none'; style-src '{STYLE_DIGEST}'; base-uri 'none'; form-action 'none'"


def _text(value: str) -> str:
    return escape(printable(value), quote=True)


def _code(lines: Iterable[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(lines), quote=True)}</code></pre>"


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{content}\n</section>"


def _findings(title: str, note: str, findings: list[Finding], pages: Mapping[str, str]) -> str:
    if not findings:
        return ""
    intro = f"<p>{_text(note)}</p>\n" if note else ""
    return _section(title, intro + "\n".join(_finding(finding, pages.get(finding.rule, "")) for finding in findings))


def _finding(finding: Finding, page: str) -> str:
    severity = finding.severity.value
    fault = finding.kind is Kind.FAULT
    rows = [
        ("Where", _where(finding.location) if finding.location else ""),
        ("Seen", _text(format_count(finding.count, "time")) if finding.count > 1 else ""),
        ("Cost" if fault else "Gain", _text(cost(finding))),
        ("Fix", _code(printable_lines(finding.fix)) if finding.fix.strip() else ""),
        ("Also at", "<br>".join(f"<code>{_text(place(location))}</code>" for location in finding.also)),
        ("Certainty", _text(format_share(finding.confidence))),
    ]
    parts = [
        f'<article class="{severity}">',
        f'<h3><span class="badge">{severity}{"" if fault else " opportunity"}</span> {_text(finding.rule)}</h3>',
        f"<p>{_text(finding.message)}</p>",
        _definitions(rows),
        _evidence(finding),
        f"<details><summary>About this rule</summary>{_code(printable_lines(page))}</details>" if page.strip() else "",
        "</article>",
    ]
    return "\n".join(part for part in parts if part)


def _where(location: Location) -> str:
    source = printable_lines(location.source)
    return f"<code>{_text(place(location))}</code>" + (_code(source) if source else "")


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    """A list of labels and values that are HTML already; rows without a value are left out."""
    items = "\n".join(f"<dt>{_text(label)}</dt><dd>{value}</dd>" for label, value in rows if value)
    return f"<dl>\n{items}\n</dl>"


def _evidence(finding: Finding) -> str:
    if not finding.evidence:
        return ""
    rows = [(name.replace("_", " "), _text(_figure(value))) for name, value in finding.evidence.items()]
    return f"<details><summary>Evidence</summary>\n{_definitions(rows)}\n</details>"


def _figure(value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _hottest(diagnosis: Diagnosis) -> str:
    lines = [(share, f"<code>{_text(place)}</code>{_code([source]) if source else ''}")
             for share, place, source in hot_lines(diagnosis)]  # fmt: skip
    operators = [(share, f"<code>{_text(name)}</code>") for share, name in hot_operators(diagnosis)]
    found = ((HOT_LINES, lines), (HOT_OPERATORS, operators))
    return "\n".join(_section(title, _definitions(rows)) for title, rows in found if rows)


def _memory(title: str, memory: DeviceMemory) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{_text(label)}</th><td>{size}</td><td>{share}</td>'
        f'<td><progress max="1" value="{min(max(fraction, 0), 1):.4f}"></progress></td></tr>'
        for label, size, share, fraction in memory_parts(memory)
    )
    figures = [(label, _text(value)) for label, value in memory_figures(memory)]
    lines = [(size, f"<code>{_text(where)}</code>{_code([source]) if source else ''}")
             for size, where, source in memory_lines(memory)]  # fmt: skip
    told = f"<h3>{_text(MEMORY_LINES)}</h3>\n{_definitions(lines)}" if lines else ""
    picture = draw_timeline(memory)
    return _section(title, f"{_definitions(figures)}\n{picture}<table>\n{rows}\n</table>\n{told}")


def _skipped(diagnosis: Diagnosis) -> str:
    if not diagnosis.skipped:
        return ""
    rows = [
        (reason, _rules(rules))
        for reason, rules in group_by_reason(diagnosis.skipped)
    ]
    return _section("Not looked at", _definitions(rows))


def _rules(rules: Sequence[str]) -> str:
    """Folded if there are many."""
    names, few = ", ".join(f"<code>{_text(rule)}</code>" for rule in rules), skipped_rules(rules)
    if few == ", ".join(rules):
        return names
    return f"<details><summary>{_text(few)}</summary>{names}</details>"


def _shares(diagnosis: Diagnosis) -> str:
    bound = bound_note(diagnosis.timing)
    if not diagnosis.timing.shares and not bound:
        return ""
    note = f"<p>{_text(bound)}</p>\n" if bound else ""
    rows = "\n".join(
        f'<tr><th scope="row">{_text(share.label)}</th><td>{format_time(share.time_ns_per_step)}</td>'
        f'<td>{format_share(share.fraction)}</td><td><progress max="1" value="{min(max(share.fraction, 0), 1):.4f}">'
        "</progress></td></tr>"
        for share in diagnosis.timing.shares
    )
    table = f"<table>\n{rows}\n</table>" if rows else ""
    return _section("Where the step's time went", f"{note}{table}")


def _workers(diagnosis: Diagnosis) -> str:
    lines = "".join(f"<li>{_text(line)}</li>\n" for line in worker_lines(diagnosis))
    return _section("What the DataLoader's workers did", f"<ul>\n{lines}</ul>") if lines else ""


def _recording(diagnosis: Diagnosis) -> str:
    notes = "".join(f"<li>{_text(note)}</li>\n" for note in diagnosis.health)
    warnings = f"<ul>\n{notes}</ul>\n" if notes else ""
    facts = [(label, _text(value)) for label, value in run_facts(diagnosis)]
    return _section("The recording", warnings + _definitions(facts)) if facts or notes else ""
