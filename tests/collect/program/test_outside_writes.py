"""A process that must not write outside of a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, shutil, sys
from pathlib import Path
from profkit.collect.program.outside_writes import OutsideWrites

def refuse(path):
    print(Path(path).name)
    os._exit(0)

inside, kept = map(Path, sys.argv[1:3])
writes = OutsideWrites(inside, kept)
writes.install(refuse)
exec(sys.argv[3])
print("done")
"""


def run(tmp_path: Path, code: str) -> str:
    """What is refused in a process that may write to ``inside``, beside ``kept`` with a file in it."""
    inside, kept = tmp_path / "kept" / "inside", tmp_path / "kept"
    inside.mkdir(parents=True)
    (kept / "old").write_text("old")
    command = [sys.executable, "-c", PROGRAM, str(inside), str(kept), code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (kept / "old").read_text() == "old"
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        "open(kept / 'old', 'w')",
        "open(kept / 'old', 'r+')",
        "os.open(kept / 'old', os.O_WRONLY)",
        "(kept / 'old').unlink()",
        "(inside / 'new').write_text('x'); os.replace(inside / 'new', kept / 'old')",
        "writes.has(kept / 'old') and refuse(kept / 'old')",
    ],
)
def test_a_file_outside_is_kept(tmp_path: Path, code: str):
    assert run(tmp_path, code) == "old"


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("shutil.rmtree(kept)", "kept"),
        ("os.mkdir(kept / 'more')", "more"),
        ("open('/srv/profkit-new', 'w')", "profkit-new"),
        ("os.symlink(kept / 'old', inside / 'link'); open(inside / 'link', 'w')", "link"),
        ("os.symlink(inside / 'new', kept / 'link')", "link"),
    ],
)
def test_nothing_is_made_or_removed_outside(tmp_path: Path, code: str, refused: str):
    assert run(tmp_path, code) == refused


@pytest.mark.parametrize(
    "code",
    [
        "(inside / 'new').write_text('x'); os.rename(inside / 'new', inside / 'newer')",
        "open(kept / 'old').read()",
        "os.makedirs(kept, exist_ok=True)",
        "open(os.devnull, 'w')",
        "import tempfile; tempfile.NamedTemporaryFile()",
        "assert not writes.has(3)",
        "os.symlink(kept / 'old', inside / 'link'); open(inside / 'link').read()",
    ],
)
def test_the_rest_goes_on(tmp_path: Path, code: str):
    assert run(tmp_path, code) == "done"
