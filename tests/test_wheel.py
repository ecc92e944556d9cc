"""An installed profkit: the scenarios travel inside it, and a user's own `scenarios` package is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds the unpacked wheel, as site-packages would."""
    built, temporary = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("temporary")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
        capture_output=True,
    )
    assert list(temporary.iterdir()) == []
    (wheel,) = built.glob("*.whl")
    site = built / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def python(installed: Path, cwd: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout


def test_the_wheel_holds_one_top_level_package_only(installed: Path) -> None:
    packages = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"profkit"}


def test_an_installed_profkit_finds_the_built_in_scenarios_from_anywhere(installed: Path, tmp_path: Path) -> None:
    where = python(installed, tmp_path, "-c", "import profkit; print(profkit.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    listed = python(installed, tmp_path, "-m", "profkit", "scenarios")
    names = {path.stem.replace("_", "-") for path in (ROOT / "scenarios").glob("[a-z]*.py")}
    assert names <= set(listed.split())


def test_scenarios_of_the_user_and_of_profkit_do_not_shadow_each_other(installed: Path, tmp_path: Path) -> None:
    own = tmp_path / "scenarios"
    own.mkdir()
    (own / "__init__.py").write_text("NAME = 'mine'\n")
    (own / "loss_list.py").write_text("raise RuntimeError('profkit must not import this')\n")
    assert "loss-list" in python(installed, tmp_path, "-m", "profkit", "scenarios").split()
    code = "import profkit.diagnosis.catalogue as c; c.list_scenarios(); import scenarios; print(scenarios.NAME)"
    assert python(installed, tmp_path, "-c", code).strip() == "mine"


def test_the_skill_for_agents_travels_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert python(installed, tmp_path, "-m", "profkit", "mcp", "--skill").startswith("---\nname: profkit\n")


def test_an_installed_profkit_has_its_templates_compiled_and_renders_the_same_page(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, hashlib; from pathlib import Path; from profkit.report.html.page import render_html;"
        "from profkit.diagnosis.pipeline import diagnose_path;"
        "page = render_html(diagnose_path(Path(sys.argv[1])));"
        "print('profkit.report.html.compiled.report' in sys.modules, hashlib.sha256(page.encode()).hexdigest())"
    )
    trace = next((ROOT / "traces" / "recorded").rglob("*.json.gz"))
    told = {where: python(where, tmp_path, "-c", code, str(trace)).split() for where in (installed, ROOT)}
    assert [told[where][0] for where in (installed, ROOT)] == ["True", "False"]
    assert told[installed][1] == told[ROOT][1]
