"""What a thread waits for in the kernel: a socket, another process, the terminal.

A C function that waits has no frame of its own: ``sock.sendall`` and ``os.system`` show no more than the program's
line. Linux says which system call a thread sleeps in, and with which descriptor.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path

from profkit.collect.whole_run.kernel_files import read_kernel_file
from profkit.run.whole_run import StackActivity

_X86, _ARM = "x86_64", "aarch64"
_TRANSFERS = {
    _X86: frozenset((0, 1, 17, 18, 19, 20, 40, 42, 43, 44, 45, 46, 47, 288)),
    _ARM: frozenset((63, 64, 65, 66, 67, 68, 71, 202, 203, 206, 207, 211, 212, 242)),
}
"""``read``, ``write``, ``pread64``, ``pwrite64``, ``readv``, ``writev``, ``sendfile``, ``connect``, ``accept``,
``sendto``, ``recvfrom``, ``sendmsg``, ``recvmsg`` and ``accept4``, whose first argument is a descriptor. Numbers from
Linux's ``unistd.h`` of each architecture."""
_CHILDREN = {_X86: frozenset((61, 247)), _ARM: frozenset((260, 95))}
"""``wait4`` and ``waitid``, from the same files."""
_INTERNET = ("tcp", "tcp6", "udp", "udp6")
"""Files of ``/proc/self/net``. Other sockets lead to processes of the same machine, such as multiprocessing's."""
_INODE = 9
"""The field with the socket's number in these files (``proc_net_tcp`` in Linux's documentation)."""
_MOST_SOCKETS = 256
"""As many are remembered: reading the tables of a busy server may take a millisecond."""
_INPUT = 0
"""Standard input: what `input` reads, whether somebody types it or another program writes it."""
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


class Blocking:
    """Asks about one thread of this process; nothing is known where Linux does not say, or on other processors."""

    def __init__(self, thread: int, root: Path = Path("/proc/self")) -> None:
        self._call, self._open = str(root / "task" / str(thread) / "syscall"), str(root / "fd")
        machine = platform.machine()
        self._transfers = _TRANSFERS.get(machine, frozenset[int]())
        self._children = _CHILDREN.get(machine, frozenset[int]())
        self._net = root / "net"
        self._sockets: dict[str, bool] = {}

    def read(self) -> StackActivity | None:
        """What the thread sleeps for; None if it runs, or sleeps for something else."""
        with suppress(OSError, ValueError, IndexError):
            words = read_kernel_file(self._call).split()
            number = int(words[0])  # "running" is no number
            if number in self._children:
                return StackActivity.CHILD
            if number in self._transfers:
                descriptor = int(words[1], 16)
                return self._purpose(descriptor, os.readlink(f"{self._open}/{descriptor}"))
        return None

    def _purpose(self, descriptor: int, target: str) -> StackActivity | None:
        if target.startswith("socket:"):
            return StackActivity.NETWORK if self._leads_outside(target) else None
        return StackActivity.ASKING if descriptor == _INPUT or target.startswith(_TERMINALS) else None

    def _leads_outside(self, target: str) -> bool:
        if target not in self._sockets:
            if len(self._sockets) >= _MOST_SOCKETS:
                self._sockets.clear()
            inode = target.removeprefix("socket:[").removesuffix("]")
            self._sockets[target] = any(inode in _inodes(self._net / name) for name in _INTERNET)
        return self._sockets[target]


def _inodes(table: Path) -> set[str]:
    with suppress(OSError):
        rows = (line.split() for line in table.read_text(encoding="ascii", errors="replace").splitlines()[1:])
        return {row[_INODE] for row in rows if len(row) > _INODE}
    return set()
