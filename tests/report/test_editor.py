"""Links from a page to the lines in an editor."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.settings import EDITORS, read_settings
from profkit.findings.values import Location
from profkit.report.html.editor import link_to, usual_editor


@pytest.mark.parametrize(
    ("editor", "address"),
    [
        ("vscode", "vscode://file{}/train.py:31"),
        ("pycharm", "pycharm://open?file={}/train.py&line=31"),
        ("idea", "idea://open?file={}/train.py&line=31"),
        ("sublime", "subl://open?url=file://{}/train.py&line=31"),
        ("none", ""),
    ],
)
def test_each_editor_has_its_address(tmp_path: Path, editor: str, address: str) -> None:
    (tmp_path / "train.py").touch()
    assert link_to(Location(str(tmp_path / "train.py"), 31, "f"), EDITORS[editor]) == address.format(tmp_path)


@pytest.mark.parametrize("name", ['a"><script>.py', "javascript:alert(1).py", "a b&line=1#x.py", "{line}.py", "%41.py"])
def test_a_hostile_file_name_is_escaped_in_the_address(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    address = link_to(Location(str(tmp_path / name), 7, "f"), EDITORS["vscode"])
    assert address.startswith(f"vscode://file{tmp_path}/")
    assert address.endswith(".py:7")
    assert not set(address.removeprefix("vscode:").removesuffix(":7")) & set(" :\"'<>&#?{}")


@pytest.mark.parametrize("file", ["train.py", "/nowhere/a.py", "//server/a.py", "\\\\server\\a.py", "/a\0.py", ""])
def test_a_missing_file_has_no_link(file: str) -> None:
    assert not link_to(Location(file, 31, "f"), EDITORS["vscode"])


def test_only_python_files_have_links(tmp_path: Path) -> None:
    (tmp_path / "run.sh").touch()
    assert not link_to(Location(str(tmp_path / "run.sh"), 1, "f"), EDITORS["vscode"])


@pytest.mark.parametrize(
    ("environment", "editor"),
    [
        ({}, "vscode"),
        ({"TERM_PROGRAM": "vscode"}, "vscode"),
        ({"TERMINAL_EMULATOR": "JetBrains-JediTerm"}, "pycharm"),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "none"),
        ({"CI": "true", "TERMINAL_EMULATOR": "JetBrains-JediTerm"}, "none"),
    ],
)
def test_without_a_setting_the_terminal_determines_the_editor(environment: dict[str, str], editor: str) -> None:
    assert usual_editor(environment) == EDITORS[editor]


@pytest.mark.parametrize("editor", ["idea", "none", "zed://file{file}:{line}"])
def test_a_project_can_set_its_editor(tmp_path: Path, editor: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.profkit]\neditor = '{editor}'")
    assert read_settings(tmp_path).editor == EDITORS.get(editor, editor)


@pytest.mark.parametrize(
    "editor", ["javascript://%0aalert({file})", "https://e.invalid/{file}", "vscode://file", "{file}", "notepad"]
)
def test_an_invalid_editor_address_is_refused(tmp_path: Path, editor: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.profkit]\neditor = '{editor}'")
    with pytest.raises(UsageError, match="editor: give one of vscode, pycharm, idea, sublime, none, or an address"):
        read_settings(tmp_path)
