"""Whether all reports of a hostile input are escaped: none of its text becomes markup, a link or a command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as Xml

from markdown_it import MarkdownIt

from profkit.core.errors import ProfkitError, UsageError
from profkit.diagnosis.compare.comparison import Comparison
from profkit.diagnosis.settings import EDITORS
from profkit.findings.values import Diagnosis, Severity
from profkit.report import COMPARISON_FORMATS, FORMATS, render, render_comparison
from profkit.report.files import rule_pages
from profkit.report.html.environment import asset
from profkit.report.json import parse_json
from tests.fuzzing.hostile import CANARY

_PAGE_TAGS = frozenset(
    "a article b body br button circle code dd del details div dl dt figcaption figure footer g h1 h2 h3 h4 head "
    "header html ins input "
    "label li line main mark meta ol option p path polygon polyline pre rect script section select small span "
    "strong style summary svg table tbody td text th thead time title tr ul".split()
)
_PAGE_ATTRIBUTES = re.compile(
    "id|class|lang|charset|name|content|http-equiv|href|hidden|scope|role|tabindex|type|size|for|value|title|open|"
    "selected|colspan|rowspan|style|xmlns|viewbox|preserveaspectratio|width|height|x|y|dy|r|cx|cy|x1|x2|y1|y2|rx|ry|d|fill|"
    "stroke|stroke-dasharray|stroke-width|points|transform|text-anchor|font-family|font-size|aria-[a-z]+|data-[a-z-]+"
)
_ADDRESSES = ("href", "src", "action", "xlink:href", "formaction", "srcdoc", "data")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MARKDOWN_BLOCKS = frozenset(
    "inline fence paragraph_open paragraph_close heading_open heading_close bullet_list_open bullet_list_close "
    "list_item_open list_item_close table_open table_close thead_open thead_close tbody_open tbody_close tr_open "
    "tr_close th_open th_close td_open td_close".split()
)
_MARKDOWN_INLINES = frozenset("text softbreak code_inline text_special html_inline".split())
_URI = re.compile(r"(?:file:///)?[A-Za-z0-9._~!$&'()*+,;=@/%:-]*")
_ANNOTATION = re.compile(r"::(?:error|warning|notice) (?:[a-z]+=[^,:\r\n]*,?)+::[^\r\n]*")
_COMMAND = re.compile(r"\s*::(error|warning|notice|add-mask|stop-commands)( .*)?::|.*##\[error\]", re.IGNORECASE)
_EDITOR = EDITORS["vscode"]
_TEMPLATES = tuple(template.partition("{file}")[0] for template in EDITORS.values() if template)


class Unescaped(Exception):
    """A report holds something of the input as other than text."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Unescaped(what)


def check_error(error: ProfkitError, folder: Path) -> None:
    """What the command line prints of an error is one line that no terminal takes for more."""
    said = str(error).replace(str(folder), "")
    expect(said.isprintable(), f"an error that is not one printable line: {said!r:.200}")
    expect(bool(said.strip()), "an error without words")


def check_reports(diagnosis: Diagnosis) -> None:
    """Render the diagnosis in every format, and check each."""
    pages = rule_pages()
    check_text(render(diagnosis, "text"), render(diagnosis, "text", color=True))
    check_text(render(diagnosis, "text", width=40), render(diagnosis, "text", width=40, color=True))
    check_json(diagnosis, render(diagnosis, "json"))
    check_markdown(render(diagnosis, "markdown"))
    check_html(render(diagnosis, "html", pages=_few(pages, diagnosis), editor=_EDITOR))
    check_sarif(render(diagnosis, "sarif", pages=_few(pages, diagnosis)))
    check_github(render(diagnosis, "github"), diagnosis)
    check_agent(render(diagnosis, "agent"))
    check_junit(render(diagnosis, "junit", pages=_few(pages, diagnosis), fails=lambda one: one.count % 2 == 0))
    try:
        check_markup(render(diagnosis, "memory-timeline"))
    except UsageError:
        expect(not any(one.timeline for one in diagnosis.memory), "no picture of a memory timeline that is there")
    expect(set(FORMATS) == _CHECKED, "a format that nothing checks")


def check_comparison(comparison: Comparison) -> None:
    """The same for a comparison."""
    text, markdown, html = (render_comparison(comparison, name) for name in ("text", "markdown", "html"))
    check_text(text, render_comparison(comparison, "text", color=True))
    json.loads(render_comparison(comparison, "json"))
    check_markdown(markdown)
    check_markup(html, styles=[asset("report.css")])
    expect(set(COMPARISON_FORMATS) == {"text", "json", "markdown", "html"}, "a format that nothing checks")


_CHECKED = {"text", "json", "markdown", "html", "sarif", "github", "junit", "agent", "memory-timeline"}


def _few(pages: dict[str, str], diagnosis: Diagnosis) -> dict[str, str]:
    """The pages of the rules that found something, and of one that did not: parsing all takes most of the time."""
    found = {finding.rule for finding in diagnosis.findings}
    return {name: page for name, page in pages.items() if name in found or name == "launch-bound"}


# Terminals


def check_text(plain: str, coloured: str) -> None:
    _expect_printable(plain)
    lines = [line.rstrip() for line in _COLOUR.sub("", coloured).splitlines()]
    expect(lines == plain.splitlines(), "escape codes that profkit did not write")
    _expect_no_command(plain)


def check_agent(text: str) -> None:
    _expect_printable(text)
    _expect_no_command(text)


def _expect_no_command(text: str) -> None:
    for line in text.splitlines():
        expect(not _COMMAND.match(line), f"a line that GitHub Actions takes for a command: {line:.100}")


def _expect_printable(text: str) -> None:
    bad = next((one for one in text if not one.isprintable() and one != "\n"), None)
    expect(bad is None, f"the control character {bad!r}")
    text.encode()


# JSON


def check_json(diagnosis: Diagnosis, text: str) -> None:
    json.loads(text, parse_constant=_refuse_constant)
    again = parse_json(text.encode())
    expect(len(again.findings) == len(diagnosis.findings), "JSON that loses findings")


def _refuse_constant(name: str) -> None:
    raise Unescaped(f"JSON with {name}")


# Markup


def check_html(page: str) -> None:
    check_markup(page, [asset("report.js")], [asset("report.css")])


def check_markup(page: str, scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> None:
    """These are the only scripts and style sheets, and the rest has only elements and attributes of profkit's."""
    parser = _Elements()
    parser.feed(page)
    parser.close()
    expect(parser.scripts == list(scripts), "a script that is not profkit's")
    expect(parser.styles == list(styles), "a style sheet that is not profkit's")


class _Elements(HTMLParser):
    """Checks each element and attribute of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        expect(tag in _PAGE_TAGS, f"the element <{tag}>")
        self._inside = tag if tag in ("script", "style") else self._inside
        for name, value in attrs:
            expect(_PAGE_ATTRIBUTES.fullmatch(name) is not None, f"the attribute {name} of <{tag}>")
            if name in _ADDRESSES:
                address = value or ""
                expect(address.startswith(("#", "../", *_TEMPLATES)) or not address, f"the address {address:.100}")
            if name == "id":
                expect(CANARY not in (value or ""), "an identifier out of the input")

    def handle_endtag(self, tag: str) -> None:
        expect(tag in _PAGE_TAGS, f"the end of an element </{tag}>")
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "style":
            self.styles.append(data)
        else:
            _expect_printable(data)

    def handle_comment(self, data: str) -> None:
        raise Unescaped(f"a comment: {data:.80}")

    def handle_pi(self, data: str) -> None:
        raise Unescaped(f"a processing instruction: {data:.80}")

    def unknown_decl(self, data: str) -> None:
        raise Unescaped(f"a declaration: {data:.80}")


# Markdown


def check_markdown(text: str) -> None:
    _expect_printable(text)
    for token in _markdown().parse(text):
        expect(token.type in _MARKDOWN_BLOCKS, f"Markdown's {token.type}: {token.content:.100}")
        for inner in token.children or ():
            expect(inner.type in _MARKDOWN_INLINES, f"Markdown's {inner.type}: {token.content:.100}")
            if inner.type == "html_inline":
                expect(inner.content == "<!-- -->", f"HTML in Markdown: {inner.content:.100}")
            if inner.type == "text":
                expect(not re.search(r"(?:^|[^\w`])@\w", inner.content), f"a mention: {inner.content:.100}")


@cache
def _markdown() -> MarkdownIt:
    """With links to any address: the library would leave out those that it takes for harmful."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


# What tools read


def check_github(text: str, diagnosis: Diagnosis) -> None:
    _expect_printable(text)
    lines = text.split("\n")
    wanted = 1 + sum(finding.severity is not Severity.INFO for finding in diagnosis.findings)
    expect(lines[-1] == "" and len(lines) == wanted + 1, f"{len(lines) - 1} lines of annotations for {wanted}")
    for line in lines[:-1]:
        expect(_ANNOTATION.fullmatch(line) is not None, f"no annotation: {line:.200}")


def check_sarif(text: str) -> None:
    found = json.loads(text, parse_constant=_refuse_constant)
    text.encode()
    _check_node(found, "", "")


_MESSAGES = ("message", "description", "shortDescription")
"""Of the others that have a text, a snippet and an insertion are no messages, and a rule's page is profkit's own."""


def _check_node(node: object, key: str, holder: str) -> None:
    if isinstance(node, dict):
        for name, inner in node.items():
            _check_node(inner, name, key)
    elif isinstance(node, list):
        for inner in node:
            _check_node(inner, key, holder)
    elif isinstance(node, str):
        if key == "uri":
            first = node.partition("/")[0]
            good = _URI.fullmatch(node) is not None and (":" not in first or first == "file:")
            expect(good, f"the address {node:.100}")
            expect(re.search("%(?![0-9A-Fa-f]{2})", node) is None, f"the address {node:.100}")
        elif key == "text" and holder in _MESSAGES:
            expect(re.search(r"\]\(", node) is None, f"a link in a message: {node:.200}")


def check_junit(text: str) -> None:
    tags = {element.tag for element in Xml.fromstring(text.encode()).iter()}
    allowed = {"testsuites", "testsuite", "properties", "property", "testcase", "failure", "skipped"}
    expect(tags <= allowed | {"system-out", "system-err"}, f"JUnit's elements {tags}")
