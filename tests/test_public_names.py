"""The names that users of the Python API rely on, and what they take."""

from __future__ import annotations

import inspect

import profkit
from profkit import Diagnosis


def taken_by(function: object) -> list[str]:
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_exactly_these_public_names_exist() -> None:
    assert profkit.__all__ == [
        "Comparison",
        "Diagnosis",
        "ProfkitError",
        "__version__",
        "compare",
        "diagnose",
        "load",
        "profile",
    ]
    for name in profkit.__all__:
        assert getattr(profkit, name) is not None


def test_the_parameters_of_the_public_functions_are_unchanged() -> None:
    assert taken_by(profkit.diagnose) == ["target"]
    assert taken_by(profkit.compare) == ["before", "after", "force"]
    assert taken_by(profkit.load) == ["path"]
    assert taken_by(Diagnosis.to_dict) == []
    assert taken_by(Diagnosis.save) == ["path"]
    assert taken_by(profkit.profile) == [
        "directory",
        "wait",
        "warmup",
        "active",
        "limit_s",
        "steps_from",
        "at_step",
        "ranks",
        "target",
        "on_progress",
    ]
