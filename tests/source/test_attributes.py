"""Attributes of objects whose classes would notice, or refuse."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from profkit.source.attributes import attributes_of, names_of


class Plain:
    def __init__(self) -> None:
        self.a = 1


class Slots:
    __slots__ = ("a",)


class SlotsAndMore:
    __slots__ = ("__dict__", "a")


class Hostile(Plain):
    def __getattribute__(self, name: str) -> object:
        raise AssertionError(name)


class Hidden:
    @property
    def __dict__(self):  # type: ignore[override]
        raise AssertionError("asked")


class OfMeta(type):
    __mro__ = __dict__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class WithMeta(Plain, metaclass=OfMeta):
    pass


@pytest.mark.parametrize("kind", [Plain, SlotsAndMore, Hostile, WithMeta, SimpleNamespace, torch.nn.Module])
def test_an_objects_own_attributes_are_found(kind):
    value = kind.__new__(kind)
    object.__setattr__(value, "b", 2)
    assert attributes_of(value) == {"b": 2}


@pytest.mark.parametrize("value", [Slots(), Hidden(), 1, None, [1], {"a": 1}])
def test_without_attributes_or_access_there_are_none(value):
    assert attributes_of(value) == {}


def test_modules_functions_and_partials_have_attributes():
    def function() -> None: ...

    function.a = partial = functools.partial(function)
    partial.a = 1
    assert attributes_of(json) is vars(json)
    assert (attributes_of(function), attributes_of(partial)) == ({"a": partial}, {"a": 1})


def test_a_lazy_module_is_not_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    spec = importlib.util.find_spec("colorsys")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "rgb_to_hsv" not in attributes_of(module)
    assert type(module) is not ModuleType
    assert module.rgb_to_hsv
    assert "rgb_to_hsv" in attributes_of(module)


def test_what_a_class_defines_is_read_past_its_metaclass():
    assert names_of(Plain) == vars(Plain)
    assert "__doc__" in names_of(WithMeta)
