"""Files that profkit keeps open in a program that closes what it does not know."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from profkit.collect.program.descriptors import LOST, Descriptor, KeptFile


@pytest.fixture
def number(tmp_path: Path) -> int:
    (tmp_path / "kept").write_bytes(b"first\nsecond\n")
    return os.open(tmp_path / "kept", os.O_RDONLY)


def taken_over(number: int, tmp_path: Path) -> int:
    """The program closes the file and opens one of its own under the same number."""
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    os.dup2(own, number)
    os.close(own)
    return number


def test_a_kept_file_is_read_as_any_file(number):
    with io.BufferedReader(KeptFile(number)) as file:
        file.seek(6)
        assert (file.read(3), file.readline(), file.seek(0), file.read()) == (b"sec", b"ond\n", 0, b"first\nsecond\n")
        assert file.fileno() == number
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


def test_a_file_that_was_closed_is_not_read_and_closing_it_is_no_error(number):
    file = io.BufferedReader(KeptFile(number))
    os.close(number)
    for use in (file.fileno, file.read, lambda: file.read(1), lambda: file.seek(3)):
        with pytest.raises(OSError, match=re.escape(LOST)):
            use()
    file.close()


def test_the_programs_file_under_the_same_number_stays_open(number, tmp_path):
    file, descriptor = io.BufferedReader(KeptFile(number)), Descriptor(number)
    assert descriptor.number() == number
    taken_over(number, tmp_path)
    for use in (file.read, descriptor.number):
        with pytest.raises(OSError, match=re.escape(LOST)):
            use()
    file.close()
    descriptor.close()
    os.write(number, b"mine")
    os.close(number)
    assert (tmp_path / "own").read_bytes() == b"mine"


def test_a_descriptor_is_closed_once(number):
    descriptor = Descriptor(number)
    descriptor.close()
    assert not descriptor.is_kept
    descriptor.close()
