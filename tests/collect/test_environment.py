"""What the machine says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

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
