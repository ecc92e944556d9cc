"""A diagnosis as a dict and as a file, and the file read back."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import profkit
from profkit import Diagnosis, ProfkitError
from profkit.findings.values import Finding
from profkit.report import render

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "traces" / "recorded").glob("*/*/*/"))
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "diagnosis.schema.json").read_text("utf-8"))


def check_form(found: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(SCHEMA).validate(found)


def test_a_diagnosis_as_a_dict_equals_its_file(drawn_diagnosis: Diagnosis) -> None:
    found = drawn_diagnosis.to_dict()
    assert found == json.loads(render(drawn_diagnosis, "json"))
    assert found["findings"][0]["saving"]["time_ns_per_step"] == 5_300_000
    check_form(found)


def test_empty_and_odd_diagnoses_match_the_published_schema_too(
    empty_diagnosis: Diagnosis, hostile_finding: Finding
) -> None:
    odd = replace(hostile_finding, evidence={"share": float("nan"), "\ud800": "\ud800"})
    for diagnosis in (empty_diagnosis, replace(empty_diagnosis, findings=(odd,))):
        check_form(diagnosis.to_dict())
        json.dumps(diagnosis.to_dict(), allow_nan=False).encode()


def test_a_different_form_does_not_match_the_schema(full_diagnosis: Diagnosis) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    found = full_diagnosis.to_dict()
    found["findings"][0]["severity"] = "dreadful"
    with pytest.raises(jsonschema.ValidationError):
        check_form(found)


@pytest.mark.parametrize("recording", RECORDED[:3], ids=lambda path: path.parent.name)
def test_the_diagnosis_of_a_recording_is_saved_and_read_back(tmp_path: Path, recording: Path) -> None:
    diagnosis = profkit.diagnose(recording)
    check_form(diagnosis.to_dict())
    diagnosis.save(tmp_path / "diagnosis.json")
    assert profkit.load(tmp_path / "diagnosis.json") == diagnosis
    assert profkit.load(str(tmp_path)) == diagnosis


def test_saving_replaces_an_existing_file(
    tmp_path: Path, full_diagnosis: Diagnosis, clean_diagnosis: Diagnosis
) -> None:
    path = str(tmp_path / "a.json")
    full_diagnosis.save(path)
    clean_diagnosis.save(path)
    assert profkit.load(path) == clean_diagnosis


def test_a_file_that_cannot_be_written_gives_one_line(tmp_path: Path, clean_diagnosis: Diagnosis) -> None:
    with pytest.raises(ProfkitError, match=r"absent/a\.json: cannot be written: No such file"):
        clean_diagnosis.save(tmp_path / "absent" / "a.json")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: No such file"),
        (b"{}", "is not a diagnosis that profkit wrote"),
        (b"\xff", "is not a diagnosis that profkit wrote"),
    ],
)
def test_a_file_without_a_diagnosis_gives_one_line(tmp_path: Path, content: bytes | None, cause: str) -> None:
    if content is not None:
        (tmp_path / "diagnosis.json").write_bytes(content)
    with pytest.raises(ProfkitError, match=cause) as raised:
        profkit.load(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'diagnosis.json'}: ")


def test_a_diagnosis_that_was_made_in_another_process_can_be_saved_at_once(tmp_path: Path) -> None:
    """Its methods do not rely on imports made elsewhere."""
    code = (
        "from profkit.findings.values import Diagnosis, RunSummary, Timing\n"
        "one = Diagnosis(RunSummary((), None, None, None, None), Timing(0, None, ''), (), {}, ())\n"
        "one.save('a.json'); assert one.to_dict()['schema'] == 'profkit.diagnosis/1'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert profkit.load(tmp_path / "a.json").timing.steps == 0
