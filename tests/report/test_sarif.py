"""The report as SARIF."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from profkit.findings.values import Change, Diagnosis, Finding, Kind, Location, Severity
from profkit.report.sarif import render_sarif


def run_of(diagnosis: Diagnosis, pages: dict[str, str] | None = None) -> dict[str, Any]:
    log = json.loads(render_sarif(diagnosis, pages))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    return run  # type: ignore[no-any-return] # JSON has no types


def uri_of(diagnosis: Diagnosis, finding: Finding, file: str) -> str:
    run = run_of(replace(diagnosis, findings=(replace(finding, location=Location(file, 3, "f"), also=()),)))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert isinstance(uri, str)
    return uri


def test_each_rule_is_listed_once_and_results_refer_to_it(full_diagnosis: Diagnosis, leak: Finding) -> None:
    run = run_of(replace(full_diagnosis, findings=(*full_diagnosis.findings, leak)), {"launch-bound": " the page\n"})
    assert run["tool"]["driver"] == {
        "name": "profkit",
        "version": version("profkit"),
        "rules": [
            {"id": "retained-graph", "shortDescription": {"text": "retained graph"}},
            {"id": "launch-bound", "shortDescription": {"text": "launch bound"}, "help": {"text": "the page"}},
            {"id": "zero-filled-gradients", "shortDescription": {"text": "zero filled gradients"}},
        ],
    }
    assert [(r["ruleId"], r["ruleIndex"]) for r in run["results"]] == [
        ("retained-graph", 0),
        ("launch-bound", 1),
        ("zero-filled-gradients", 2),
        ("retained-graph", 0),
    ]


def test_a_finding_keeps_its_fingerprint_if_its_line_moves(full_diagnosis: Diagnosis, leak: Finding) -> None:
    assert leak.location is not None
    place = leak.location
    prints = [
        run_of(replace(full_diagnosis, findings=(replace(leak, location=location),)))["results"][0][
            "partialFingerprints"
        ]
        for location in (place, replace(place, line=99), replace(place, source="other(line)"))
    ]
    assert prints[0] == prints[1] != prints[2]


def test_a_result_states_cost_place_and_fix(full_diagnosis: Diagnosis) -> None:
    assert run_of(full_diagnosis)["results"][0] == {
        "partialFingerprints": {"lineText/v1": "58c7cb822a9827907fb84df25d6de72e"},
        "ruleId": "retained-graph",
        "ruleIndex": 0,
        "level": "error",
        "message": {
            "text": "The list `losses` keeps the graph of every step alive. Cost: 5.30 ms per step (43 % of the step; "
            "likely 30 to 50 %); memory grows by 4.00 MB per step. Fix: Append the number, not the graph: "
            "losses.append(loss.detach())"
        },
        "occurrenceCount": 5,
        "properties": {
            "kind": "fault",
            "severity": "high",
            "confidence": 0.9,
            "timeNsPerStep": 5_300_000,
            "fraction": 0.43,
            "bytes": 4_000_000,
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "train.py"},
                    "region": {"startLine": 31, "snippet": {"text": "losses.append(loss)"}},
                },
                "logicalLocations": [{"name": "train_step", "kind": "function"}],
            }
        ],
        "relatedLocations": [
            {
                "id": 1,
                "physicalLocation": {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 44}},
                "logicalLocations": [{"name": "evaluate", "kind": "function"}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("kind", "severity", "level"),
    [
        (Kind.FAULT, Severity.HIGH, "error"),
        (Kind.FAULT, Severity.MEDIUM, "warning"),
        (Kind.FAULT, Severity.LOW, "note"),
        (Kind.FAULT, Severity.INFO, "note"),
        (Kind.OPPORTUNITY, Severity.HIGH, "note"),
    ],
)
def test_the_level_follows_the_severity_and_an_opportunity_is_a_note(
    full_diagnosis: Diagnosis, leak: Finding, kind: Kind, severity: Severity, level: str
) -> None:
    finding = replace(leak, kind=kind, severity=severity)
    assert run_of(replace(full_diagnosis, findings=(finding,)))["results"][0]["level"] == level


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("src/train.py", "src/train.py"),
        ("a b/100%/ü#?.py", "a%20b/100%25/%C3%BC%23%3F.py"),
        ("c:d.py", "c%3Ad.py"),
        ("<string>", "%3Cstring%3E"),
        ("/home/a b/train.py", "file:///home/a%20b/train.py"),
        ("C:\\code dir\\train.py", "file:///C:/code%20dir/train.py"),
        ("odd\ud800.py", "odd%3F.py"),
    ],
)
def test_a_file_is_named_by_an_encoded_uri(full_diagnosis: Diagnosis, leak: Finding, file: str, uri: str) -> None:
    assert uri_of(full_diagnosis, leak, file) == uri


def test_no_message_holds_what_a_viewer_takes_for_a_link(full_diagnosis: Diagnosis, leak: Finding) -> None:
    """SARIF's messages have links of their own, ``[text](address)``: 3.11.6."""
    attack = "hooks[0](x) and [here](javascript:alert(1))"
    finding = replace(leak, message=attack, fix=attack, rule=attack)
    run = run_of(replace(full_diagnosis, findings=(finding,), health=(attack,), skipped={attack: attack}))
    shown = json.dumps([run["results"], run["invocations"], run["tool"]["driver"]["rules"][0]["shortDescription"]])
    assert "hooks[0] (x) and [here] (javascript:alert(1))" in shown
    assert '"message": {"text": "hooks[0](' not in shown
    assert "[here](" not in shown.replace(json.dumps(attack), "")


def test_an_unknown_line_is_left_out(full_diagnosis: Diagnosis, leak: Finding) -> None:
    finding = replace(leak, location=Location("train.py", 0, ""), also=())
    assert run_of(replace(full_diagnosis, findings=(finding,)))["results"][0]["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "train.py"}}}
    ]


def test_health_and_rules_that_could_not_look_are_notifications(full_diagnosis: Diagnosis) -> None:
    (invocation,) = run_of(full_diagnosis)["invocations"]
    assert invocation == {
        "executionSuccessful": True,
        "toolExecutionNotifications": [
            {"level": "warning", "message": {"text": "The trace was cut off: 3 of 8 steps are missing."}},
            {"level": "note", "message": {"text": "pageable-transfer did not look: the recording holds no GPU"}},
            {"level": "note", "message": {"text": "fragmentation did not look: the recording holds no GPU"}},
        ],
    }


def test_nothing_found_is_a_run_without_results(empty_diagnosis: Diagnosis) -> None:
    run = run_of(empty_diagnosis)
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_the_verdict_is_stored_as_a_property_of_the_run(full_diagnosis: Diagnosis) -> None:
    assert run_of(full_diagnosis)["properties"] == {
        "verdict": "1 fault costs 43 % (30 to 50) of the step: retained-graph at train.py:31"
    }


WHOLE = "    losses.append(loss)"


def changed(leak: Finding, after: str, around: tuple[str, ...] = ("for x in data:", WHOLE), **more: Any) -> Finding:
    """A finding with a fix for its line, the second of those around it."""
    place = Location("train.py", 31, "train", WHOLE.strip(), "call", around, 30)
    change = Change(**{"file": "train.py", "line": 31, "before": WHOLE.strip(), "after": after} | more)
    return replace(leak, location=place, change=change, fix="Detach it.")


def fixes_of(diagnosis: Diagnosis, finding: Finding) -> Any:
    return run_of(replace(diagnosis, findings=(finding,)))["results"][0].get("fixes")


def test_a_fix_replaces_the_text_of_the_line_and_keeps_its_indentation(full_diagnosis: Diagnosis, leak: Finding):
    (fix,) = fixes_of(full_diagnosis, changed(leak, "losses.append(loss.detach())"))
    assert fix == {
        "description": {"text": "Detach it."},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": "train.py"},
                "replacements": [
                    {
                        "deletedRegion": {"startLine": 31, "startColumn": 5, "endColumn": 24},
                        "insertedContent": {"text": "losses.append(loss.detach())"},
                    }
                ],
            }
        ],
    }
    region = fix["artifactChanges"][0]["replacements"][0]["deletedRegion"]
    assert WHOLE[region["startColumn"] - 1 : region["endColumn"] - 1] == "losses.append(loss)"


def test_a_removed_line_is_deleted_with_its_newline(full_diagnosis: Diagnosis, leak: Finding) -> None:
    (fix,) = fixes_of(full_diagnosis, changed(leak, ""))
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 31, "startColumn": 1, "endLine": 32, "endColumn": 1}
    assert replacement["insertedContent"] == {"text": ""}


@pytest.mark.parametrize(
    "unproven",
    [{"around": ()}, {"around": ("a", "b")}, {"line": 30}, {"file": "other.py"}, {"before": ""}, {"after": "a\x1b"}],
)
def test_a_fix_that_does_not_match_the_line_of_the_file_is_left_out(
    full_diagnosis: Diagnosis, leak: Finding, unproven: dict[str, Any]
) -> None:
    assert fixes_of(full_diagnosis, changed(leak, **{"after": "pass", **unproven})) is None
    assert fixes_of(full_diagnosis, replace(leak, change=None)) is None


def test_a_change_over_several_lines_is_a_fix_too(
    full_diagnosis: Diagnosis, leak: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("for x in data:\n    e = torch.cat([e, f(x)])\nuse(e)\n")
    assert leak.location is not None
    place = replace(leak.location, file=str(tmp_path / "train.py"), line=2, source="e = torch.cat([e, f(x)])")
    grown = replace(leak, rule="growing-concatenation", location=place, change=None)
    (fix,) = fixes_of(full_diagnosis, grown)
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "train.py"}
    text = ["for x in data:\n", "    e = torch.cat([e, f(x)])\n", "use(e)\n"]
    for one in reversed(change["replacements"]):
        region = one["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        text[region["startLine"] - 1 : region["endLine"] - 1] = [one["insertedContent"]["text"]]
    assert "".join(text) == (
        "e_parts = [e]\nfor x in data:\n    e_parts.append(f(x))\ne = torch.cat(e_parts)\nuse(e)\n"
    )
    assert fixes_of(full_diagnosis, replace(grown, kind=Kind.OPPORTUNITY)) is None
