"""Which files belong to the user's program."""

from __future__ import annotations

import os
import sysconfig

import numpy as np
import pytest
import torch

import profkit
from profkit.source.code import lines_around
from profkit.source.user_code import UserFiles

STDLIB = sysconfig.get_path("stdlib")
PACKAGE = os.path.dirname(profkit.__file__)


@pytest.mark.parametrize(
    "file",
    [
        os.__file__,
        f"{STDLIB}/json/decoder.py",
        torch.__file__,
        np.__file__,
        f"{PACKAGE}/collect/recorder.py",
        "/home/me/project/.venv/lib/python3.12/site-packages/library/code.py",
        "/usr/lib/python3/dist-packages/library.py",
        "/tmp/torchinductor_me/ab/cabd.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        "<eval_with_key>.0",
    ],
)
def test_libraries_and_generated_code_are_not_the_users(file):
    assert not UserFiles()[file]


@pytest.mark.parametrize(
    "file",
    [
        __file__,
        "/home/me/project/train.py",
        "train.py",
        f"{PACKAGE}/_scenarios/loss_list.py",
        "<stdin>",
        "<ipython-input-3-abc>",
    ],
)
def test_scripts_scenarios_and_typed_code_are_the_users(file):
    assert UserFiles()[file]


def test_an_installed_program_is_the_users_if_it_is_what_runs(tmp_path):
    program = tmp_path / "site-packages" / "trainer"
    assert not UserFiles()[str(program / "run.py")]
    assert UserFiles([program])[str(program / "run.py")]


def test_an_environment_inside_the_project_is_not_the_users(tmp_path):
    files = UserFiles([tmp_path])
    assert not files[str(tmp_path / "venv" / "lib" / "site-packages" / "library.py")]
    assert files[str(tmp_path / "library.py")]


def test_the_cache_of_compiled_code_is_not_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    files = UserFiles([tmp_path])
    assert not files[str(tmp_path / "cache" / "ab.py")]
    assert files[str(tmp_path / "model.py")]


def test_lines_around_places_are_read_per_file(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("".join(f"line{number}  \n" for number in range(1, 12)))
    found = lines_around([(str(path), 2), (str(path), 10), (str(tmp_path / "absent.py"), 3)])
    assert found == {str(path): {number: f"line{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)}}
