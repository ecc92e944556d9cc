"""The virtual environments: one per group of packages that install together, each beside the Python that runs this.

The packages of that Python are seen from each environment, so that torch and profkit's own dependencies are not
installed again.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.beside.packages.packages import Package

_BUILD_TOOLS = ("setuptools", "wheel", "ninja")
"""What the packages without a wheel ask for; they are built where torch is seen."""
_LIMIT_S = 900
_WITHOUT_CUDA = """

import torch as _torch

if not _has_ops():
    _library = _torch.library.Library("torchvision", "FRAGMENT")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""For `torchvision/extension.py`: its operators are linked against CUDA, and it fails to import where they do not load
unless their names are known."""


def prepare(packages: Sequence[Package], environments: Path) -> dict[str, str]:
    """Install the packages into their environments; the result says why a package does not install here, by name."""
    failures = {}
    for package in packages:
        home = environments / package.environment
        python = _python_of(home)
        if not python.exists():
            _make(home)
        if not version_of(package, environments) and (why := _install(python, package, environments)):
            failures[package.name] = why
    for home in {environments / package.environment for package in packages}:
        _take_out_cuda(_site_of(home))
    return failures


def interpreter(package: Package, environments: Path) -> Path:
    return _python_of(environments / package.environment)


def version_of(package: Package, environments: Path) -> str:
    """Its version in its environment, empty if it is not there."""
    command = f"import importlib.metadata as m; print(m.version({package.name!r}))"
    known = subprocess.run(
        [str(interpreter(package, environments)), "-c", command], capture_output=True, text=True, check=False
    )
    return known.stdout.strip()


def _make(home: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    _pip([str(_python_of(home)), "-m", "pip", "install", "-q", *_BUILD_TOOLS])
    beside = "".join(f"{path}\n" for path in site.getsitepackages())
    (_site_of(home) / "beside.pth").write_text(beside, encoding="utf-8")


def _install(python: Path, package: Package, environments: Path) -> str:
    """Why pip cannot install it, in a line; empty if it can. No package may change torch or bring CUDA's libraries."""
    constraints = environments / "constraints.txt"
    constraints.write_text(f"torch=={version('torch').split('+')[0]}\ntorchvision==0.28.0\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "-q", "--no-build-isolation", "-c", str(constraints)]
    planned = _pip([*pip, "--dry-run", "--report", "-", *(package.requirements or (package.name,))])
    if planned.returncode:
        return _reason(planned.stdout + planned.stderr)
    if "nvidia-" in planned.stdout.replace("nvidia-ml-py", ""):
        return "it brings CUDA's libraries"
    installed = _pip([*pip, *(package.requirements or (package.name,))])
    return _reason(installed.stdout + installed.stderr) if installed.returncode else ""


def _pip(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DS_BUILD_OPS": "0", "MAX_JOBS": "1"}
    try:
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"ERROR: pip takes more than {_LIMIT_S} s")


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or line.startswith("ERROR")]
    return (errors or lines or ["pip says nothing"])[0][:160]


def _take_out_cuda(packages: Path) -> None:
    extension = packages / "torchvision" / "extension.py"
    if extension.exists() and _WITHOUT_CUDA not in extension.read_text(encoding="utf-8"):
        extension.write_text(extension.read_text(encoding="utf-8") + _WITHOUT_CUDA, encoding="utf-8")
    shutil.rmtree(packages / "torchaudio" / "lib", ignore_errors=True)


def _python_of(home: Path) -> Path:
    return home / "bin" / "python"


def _site_of(home: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
