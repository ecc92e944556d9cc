"""A scenario that runs in two processes of this machine: this one is rank 0, and `partner` runs the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import distributed

_PARTNER = "profkit.collect.launch.partner"
_TIMEOUT = timedelta(seconds=120)


@contextmanager
def with_partner(path: Path, variant: str, device: str) -> Iterator[None]:
    """Within it, the two reach each other by `torch.distributed`. The other process ends with this one, whatever ends
    it: killed here, or by the broken connection where nothing here runs any more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as torchrun has it for several processes on one machine
    with TemporaryDirectory() as directory:
        meeting = Path(directory, "meeting").as_uri()
        command = [sys.executable, "-m", _PARTNER, str(path), variant, device, meeting]
        other = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603  # profkit itself
        try:
            join(0, meeting)
            yield
        finally:
            other.kill()
            other.wait()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            torch.set_num_threads(threads)


def join(rank: int, meeting: str) -> None:
    """Wait for the other process at a file, of which ``meeting`` is the address."""
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=_TIMEOUT)
