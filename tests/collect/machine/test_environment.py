"""What the machine says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.collect.machine.environment import count_memory
from profkit.processor import multiplies_bfloat16


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
def test_instructions_for_bfloat16_are_those_that_the_system_lists(
    tmp_path: Path, cpuinfo: str, expected: bool | None
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    assert multiplies_bfloat16(path) is expected


def test_a_system_without_such_a_list_says_nothing(tmp_path: Path) -> None:
    assert multiplies_bfloat16(tmp_path / "none") is None


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
@pytest.mark.parametrize(("limit", "expected"), [("1048576\n", 1 << 20), ("max\n", None), (f"{2**63 - 4096}\n", None)])
def test_a_containers_limit_is_all_the_memory_there_is(
    tmp_path: Path, file: str, limit: str, expected: int | None
) -> None:
    """``max`` and 2^63 less a page stand for none, in version 2 and 1 of cgroups."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(limit)
    assert count_memory(tmp_path) == (expected or count_memory(tmp_path / "none"))
