"""Parsing while another thread parses, which Python up to 3.12 does not allow."""

from __future__ import annotations

import ast
import threading
from types import SimpleNamespace

import pytest

from profkit.source import syntax
from profkit.source.syntax import parse


@pytest.fixture
def within_parse(monkeypatch):
    """A parse on another thread, and a function that lets it go."""
    inside, may_end = threading.Event(), threading.Event()

    def compile_slowly(*_: object, **__: object) -> ast.Module:
        inside.set()
        may_end.wait(60)
        return ast.Module([], [])

    monkeypatch.setattr(ast, "compile", compile_slowly, raising=False)
    thread = threading.Thread(target=ast.parse, args=("",))
    thread.start()
    assert inside.wait(60)
    monkeypatch.delattr(ast, "compile")

    def let_go(*_: object) -> None:
        may_end.set()
        thread.join()

    yield let_go
    let_go()


def test_it_waits_until_the_other_thread_is_through(within_parse, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(syntax, "_NEVER", SimpleNamespace(wait=lambda for_s: waits.append(for_s) or within_parse()))
    assert isinstance(parse("x = 1").body[0], ast.Assign)
    assert len(waits) == 1


def test_a_thread_that_parses_for_ever_is_an_error_of_the_text(within_parse, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(syntax, "_NEVER", SimpleNamespace(wait=waits.append))
    with pytest.raises(SyntaxError, match="other threads parse"):
        parse("x = 1")
    assert len(waits) == syntax._TRIES


def test_a_parse_that_another_thread_spoilt_is_tried_again(monkeypatch):
    spoilt = [SystemError("AST constructor recursion depth mismatch"), None]

    def once(text: str) -> ast.Module:
        if (error := spoilt.pop(0)) is not None:
            raise error
        return ast.Module([], [])

    monkeypatch.setattr(ast, "parse", once)
    assert parse("x = 1").body == []
    assert spoilt == []


def test_what_is_no_python_stays_an_error():
    with pytest.raises(SyntaxError):
        parse("x = ")
