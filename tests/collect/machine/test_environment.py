"""What is recorded of the machine: instructions for bfloat16, its memory, and the settings in force."""

from __future__ import annotations

import gc

import pytest

from profkit.collect.machine.environment import count_memory, read_flags
from profkit.core.processor import multiplies_bfloat16


@pytest.fixture(autouse=True)
def _that_objects_are_frozen_is_known() -> None:
    """Here it is not."""


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx2 avx512_bf16 avx512f\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("Features\t: fp asimd i8mm bf16\n", True),
        ("flags\t\t: fpu avx2 avx512f\n", False),
        ("flags\t\t: fpu avx_ne_convert\nbugs: bf16\n", False),
        ("cpu : POWER9\n", None),
    ],
)
def test_bfloat16_instructions_are_read_from_the_list_of_the_system(tmp_path, cpuinfo, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    assert multiplies_bfloat16(path) is expected


def test_without_that_list_bfloat16_support_is_unknown(tmp_path):
    assert multiplies_bfloat16(tmp_path / "none") is None


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
@pytest.mark.parametrize(("limit", "expected"), [("1048576\n", 1 << 20), ("max\n", None), (f"{2**63 - 4096}\n", None)])
def test_the_limit_of_a_container_is_the_memory(tmp_path, file, limit, expected):
    """``max`` in cgroups version 2, and 2^63 less a page in version 1, mean no limit."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(limit)
    assert count_memory(tmp_path) == (expected or count_memory(tmp_path / "none"))


def test_the_flags_say_whether_the_program_froze_its_objects():
    """Those of the tests themselves are, too (``tests/conftest.py``)."""
    try:
        gc.unfreeze()
        assert read_flags()["gc_frozen"] is False
        gc.freeze()
        assert read_flags()["gc_frozen"] is True
    finally:
        gc.freeze()
