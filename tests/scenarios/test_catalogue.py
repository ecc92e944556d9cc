"""The catalogue finds profkit's own scenarios, by path, without running them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.core.errors import UnreadableInput, UsageError
from profkit.diagnosis import catalogue

ROOT = Path(__file__).parents[2]

SCENARIO = '''"""The mistake in one sentence.

More about it, which mentions the comment `# expect: some-rule` in passing.
"""

triggers = ("some-rule", "other-rule")
needs_gpu = True


def multiply(x):
    return x * x  # expect: some-rule


def pitfall(state):
    yield multiply(state)
    yield state  # expect: other-rule


def fix(state):
    yield state  # expect: some-rule
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty profkit package, which the catalogue takes for its own, in an empty directory."""
    package = tmp_path / "site" / "profkit"
    package.mkdir(parents=True)
    monkeypatch.setattr(catalogue, "_PACKAGE", package)
    monkeypatch.setattr(catalogue, "_CHECKOUT", package.parent)
    return package


def write_scenario(directory: Path, name: str, text: str = SCENARIO) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(text)
    return path


def names() -> list[str]:
    return [scenario.name for scenario in catalogue.list_scenarios()]


def test_a_scenario_is_read_from_its_text(package: Path) -> None:
    path = write_scenario(package / "_scenarios", "big_mistake.py")
    assert catalogue.list_scenarios() == (
        catalogue.Scenario(
            name="big-mistake",
            path=path,
            summary="The mistake in one sentence.",
            triggers=("some-rule", "other-rule"),
            needs_gpu=True,
            effect="time",
            expected={"pitfall": ((11, "some-rule"), (16, "other-rule")), "fix": ((20, "some-rule"),)},
        ),
    )


def test_a_scenario_needs_no_gpu_and_no_measuring_unless_it_says_so(package: Path) -> None:
    text = '"""A mistake."""\n\ntriggers = ("some-rule",)\n'
    write_scenario(package / "_scenarios", "plain.py", text)
    write_scenario(package / "_scenarios", "measured.py", f"{text}needs_measuring = True\n")
    assert not catalogue.find_scenario("plain").needs_gpu
    assert not catalogue.find_scenario("plain").needs_measuring
    assert catalogue.find_scenario("measured").needs_measuring


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no scenario is called 'lost-list'; the nearest is loss-list "):
        catalogue.find_scenario("lost-list")


def test_for_a_file_name_the_name_of_the_scenario_is_suggested() -> None:
    with pytest.raises(UsageError, match=r"no scenario is called 'xyz'; see `profkit scenarios`"):
        catalogue.find_scenario("xyz")
    with pytest.raises(UsageError, match="the nearest is loss-list "):
        catalogue.find_scenario("loss_list")


def test_a_scenario_is_found_by_its_name() -> None:
    scenario = catalogue.find_scenario("loss-list")
    assert (scenario.name, scenario.path) == ("loss-list", ROOT / "scenarios" / "loss_list.py")


def test_an_installation_without_scenarios_says_so(package: Path) -> None:
    assert catalogue.list_scenarios() == ()
    assert catalogue.recordings_root() is None
    with pytest.raises(UsageError, match="installed without its scenarios"):
        catalogue.find_scenario("loss-list")


def test_a_file_that_is_not_python_is_named(package: Path) -> None:
    path = write_scenario(package / "_scenarios", "broken.py", "def pitfall(:\n")
    with pytest.raises(UnreadableInput) as caught:
        catalogue.list_scenarios()
    assert caught.value.path == path


def test_private_files_are_not_scenarios(package: Path) -> None:
    write_scenario(package / "_scenarios", "_shared.py")
    assert names() == []


def test_the_packages_own_directory_comes_before_the_one_beside_it(package: Path) -> None:
    write_scenario(package / "_scenarios", "own.py")
    write_scenario(package.parent / "scenarios", "beside.py")
    (package.parent / "pyproject.toml").write_text('[project]\nname = "profkit"\n')
    assert names() == ["own"]


@pytest.mark.parametrize("project", [None, '[project]\nname = "someone-elses"\n'])
def test_scenarios_beside_an_installed_package_are_ignored(package: Path, project: str | None) -> None:
    write_scenario(package.parent / "scenarios", "beside.py")
    if project is not None:
        (package.parent / "pyproject.toml").write_text(project)
    assert names() == []


def test_a_checkout_keeps_its_scenarios_and_recordings_beside_the_package(package: Path) -> None:
    (package.parent / "pyproject.toml").write_text('[project]\nname = "profkit"\n')
    write_scenario(package.parent / "scenarios", "beside.py")
    recorded = package.parent / "traces" / "recorded"
    recorded.mkdir(parents=True)
    assert names() == ["beside"]
    assert catalogue.recordings_root() == recorded


def test_an_installed_package_contains_its_recordings(package: Path) -> None:
    (package / "_recorded").mkdir()
    assert catalogue.recordings_root() == package / "_recorded"


def test_scenarios_of_the_user_and_of_profkit_do_not_shadow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write_scenario(tmp_path / "scenarios", "__init__.py", "NAME = 'mine'\n")
    write_scenario(tmp_path / "scenarios", "loss_list.py", "raise RuntimeError('must not be imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "scenarios", raising=False)
    assert catalogue.find_scenario("loss-list").path == ROOT / "scenarios" / "loss_list.py"
    assert "scenarios" not in sys.modules
    users = importlib.import_module("scenarios")
    monkeypatch.setitem(sys.modules, "scenarios", users)
    assert (users.NAME, Path(users.__file__ or "")) == ("mine", own)


def test_listing_the_scenarios_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, profkit.diagnosis.catalogue as c\n"
        "assert c.list_scenarios()\n"
        "print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
