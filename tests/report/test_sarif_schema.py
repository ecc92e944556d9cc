"""The SARIF report holds to SARIF 2.1.0, and to what GitHub asks for beyond it.

The official schema (https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json) is no
part of the project; where the corpus has it under ``schemas``, it decides. The models of pydantic-sarif are made from
it and leave out only what a class cannot say, such as "one of these two keys".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.findings.values import Change, Diagnosis, Finding, Location, RunSummary
from profkit.report.files import rule_pages
from profkit.report.sarif import render_sarif

Log = dict[str, Any]


@pytest.fixture
def all_kinds(full_diagnosis: Diagnosis, hostile_finding: Finding) -> Diagnosis:
    """Findings with and without a place, with hostile texts, and of a rule that no page is known of."""
    odd = "]]> \x00\x1b[31m \ud800 \ufffe ' \""
    found = [*full_diagnosis.findings, hostile_finding, replace(hostile_finding, location=Location(odd, 0, odd, odd))]
    place = Location("train.py", 31, "train", "a = b", "call", ("    a = b",), 31)
    found.append(replace(hostile_finding, location=place, change=Change("train.py", 31, "a = b", "a = b.detach()")))
    return replace(full_diagnosis, findings=tuple(found), skipped={odd: odd}, health=(odd,))


def check_by_models(log: Log) -> None:
    models = pytest.importorskip("pydantic_sarif.model")
    models.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(log)


@pytest.fixture
def check_by_schema(corpus: Path) -> Callable[[Log], None]:
    jsonschema = pytest.importorskip("jsonschema")
    path = corpus / "schemas" / "sarif-schema-2.1.0.json"
    if not path.is_file():
        pytest.skip(f"no {path}: the official schema is no part of the project")
    formats = jsonschema.FormatChecker()
    validator = jsonschema.Draft4Validator(json.loads(path.read_text("utf-8")), format_checker=formats)
    return validator.validate  # type: ignore[no-any-return]


def broken(log: Log) -> Iterator[Log]:
    """The same with one thing wrong."""
    for key, value in (("level", "severe"), ("occurrenceCount", 0), ("ruleIndex", -2), ("unknown", 1)):
        (run,) = log["runs"]
        yield {**log, "runs": [{**run, "results": [{**run["results"][0], key: value}, *run["results"][1:]]}]}
    for fixes in ([{"artifactChanges": []}], [{"description": {"text": "a"}}]):
        (run,) = log["runs"]
        yield {**log, "runs": [{**run, "results": [*run["results"][:-1], {**run["results"][-1], "fixes": fixes}]}]}
    yield {**log, "version": "2.0.0"}


def test_the_report_fits_the_models_made_from_the_schema(all_kinds: Diagnosis) -> None:
    log = json.loads(render_sarif(all_kinds, rule_pages()))
    assert "fixes" in log["runs"][0]["results"][-1]
    check_by_models(log)
    for other in broken(log):
        with pytest.raises(ValueError, match="validation error"):
            check_by_models(other)


def test_the_report_fits_the_official_schema(all_kinds: Diagnosis, check_by_schema: Callable[[Log], None]) -> None:
    log = json.loads(render_sarif(all_kinds, rule_pages()))
    check_by_schema(log)
    for other in broken(log):
        with pytest.raises(Exception, match="Failed validating"):
            check_by_schema(other)


def test_an_empty_diagnosis_fits_the_schema_too(empty_diagnosis: Diagnosis) -> None:
    check_by_models(json.loads(render_sarif(empty_diagnosis)))


@pytest.mark.parametrize(
    ("command", "files", "uri"),
    [
        (("python", "src/train.py", "--data", "b.py"), {"trace": "a.json"}, "src/train.py"),
        (("/usr/bin/python3", "-m", "pkg.train"), {"trace": "host 1.pt.trace.json.gz"}, "host%201.pt.trace.json.gz"),
        ((), {"trace": "a.json"}, "a.json"),
    ],
)
def test_every_result_has_a_place_as_github_requires(
    full_diagnosis: Diagnosis, command: tuple[str, ...], files: dict[str, str], uri: str
) -> None:
    run = RunSummary(command, None, None, None, None, files)
    results = json.loads(render_sarif(replace(full_diagnosis, run=run)))["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert places[-1] == {"artifactLocation": {"uri": uri}}
    assert places[0]["artifactLocation"] == {"uri": "train.py"}


def test_without_any_known_file_a_result_has_no_place(full_diagnosis: Diagnosis) -> None:
    run = RunSummary((), None, None, None, None)
    results = json.loads(render_sarif(replace(full_diagnosis, run=run)))["runs"][0]["results"]
    assert "locations" not in results[-1]


def test_a_file_of_the_repository_is_named_relative_to_it(full_diagnosis: Diagnosis, leak: Finding) -> None:
    assert leak.location is not None
    here = replace(leak, location=replace(leak.location, file=str(Path.cwd() / "a" / "train.py")))
    (result,) = json.loads(render_sarif(replace(full_diagnosis, findings=(here,))))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "a/train.py"}
