"""What the run takes place on."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
_ASK = """
import json, torch
has_gpu = torch.cuda.is_available()
gpu = torch.cuda.get_device_properties(0) if has_gpu else None
print(json.dumps({
    "gpu": gpu.name if gpu else None, "gpus": torch.cuda.device_count(),
    "capability": [gpu.major, gpu.minor] if gpu else None,
    "gpu_bytes": gpu.total_memory if gpu else None, "torch": torch.__version__, "cuda": torch.version.cuda,
}))
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """``device`` is ``cuda`` or ``cpu``, as wished, and ``work`` a folder for what is not brought back."""

    device: str
    work: Path
    gpu: str | None = None
    gpus: int = 0
    capability: tuple[int, int] | None = None
    gpu_bytes: int | None = None
    torch: str = ""
    cuda: str | None = None
    driver: str | None = None
    cpus: int = 1

    @property
    def slug(self) -> str:
        """The folder of its recordings, as `profkit record` names it."""
        return re.sub(r"[^a-z0-9]+", "-", (self.gpu or "cpu").lower()).strip("-")

    def described(self) -> dict[str, Any]:
        told = {name: value for name, value in asdict(self).items() if name != "work"}
        return {**told, "python": platform.python_version(), "commit": _commit(), "load": os.getloadavg()[0]}

    def rewritten(self) -> dict[str, str]:
        """Paths of this machine, and what stands for them in recordings."""
        paths = sysconfig.get_paths()
        return {
            **{paths[name]: "/home/user/site-packages" for name in ("purelib", "platlib")},
            **{path: "/home/user/site-packages" for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path},
            paths["stdlib"]: "/home/user/python",
            str(self.work): "/home/user/work",
            str(CHECKOUT): "/home/user/profkit",
            sys.prefix: "/home/user/python",
            str(Path.home()): "/home/user",
        }


def look_at_machine(device: str, work: Path) -> Machine:
    """Ask PyTorch in another process: this one stays without a context on the GPU."""
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(asked.stdout.splitlines()[-1])
    chosen = ("cuda" if found["gpu"] else "cpu") if device == "auto" else device
    if chosen == "cpu":
        found |= {"gpu": None, "gpus": 0, "capability": None, "gpu_bytes": None}
    elif not found["gpu"]:
        raise SystemExit("PyTorch sees no GPU here; --device cpu tries everything that goes without one")
    capability = tuple(found.pop("capability") or ()) or None
    return Machine(chosen, work, **found, capability=capability, driver=_driver(), cpus=len(os.sched_getaffinity(0)))


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", text)
    return match[1] if match else None


def _commit() -> str | None:
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    except FileNotFoundError:
        return None
