"""Garbage collections of the watched thread."""

from __future__ import annotations

import gc
import threading

import pytest

from profkit.collect.whole_run.collections import Collections
from profkit.collect.whole_run.library_frames import activity_of


@pytest.fixture
def made():
    made = Collections(threading.get_ident())
    made.install()
    yield made
    made.remove()


def test_a_collection_of_this_thread_counts_once(made):
    gc.collect()
    assert made.take_ns() > 0
    assert made.take_ns() == 0


def test_one_of_another_thread_or_of_the_youngest_objects_does_not(made):
    gc.disable()
    try:
        made.take_ns()
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        gc.collect(0)
        assert made.take_ns() == 0
    finally:
        gc.enable()


def test_nothing_is_left_behind_even_if_the_program_cleared_the_list(made):
    before = [one for one in gc.callbacks if one != made.note_collection]
    made.remove()
    made.remove()
    assert gc.callbacks == before


def test_a_look_within_the_callback_counts_the_collection_and_no_time_of_profkit(made):
    made.take_ns()
    made.note_collection("start", {"generation": 2})
    assert made.take_ns() > 0
    made.note_collection("stop", {"generation": 2})
    assert made.take_ns() > 0
    assert made.take_ns() == 0
    assert activity_of(Collections.note_collection.__code__) is None
