"""profkit doctor"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.metadata import PackageNotFoundError, version

import click

_PACKAGES = ("torch", "numpy", "msgspec", "isal", "psutil", "nvidia-ml-py", "rich", "tensorboard", "torch-tb-profiler")


@click.command("doctor")
def command() -> None:
    """Show what profkit finds on this machine: versions, GPU, and what would prevent a recording.

    Exits with status 2 if nothing can be recorded here.
    """
    click.echo(f"python             {sys.version.split()[0]}")
    for package in _PACKAGES:
        click.echo(f"{package:<18} {_version(package)}")
    if importlib.util.find_spec("torch") is None:
        click.echo("torch is missing: traces can be read, nothing can be recorded")
        sys.exit(2)
    _describe_torch()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _describe_torch() -> None:
    from profkit.collect.machine.devices import look_for_devices
    from profkit.core.units import format_count

    devices = look_for_devices()
    can = "can be recorded" if devices.records_kernels else "cannot be recorded by this build of PyTorch"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    click.echo(f"GPU                {devices.gpu or 'none that PyTorch can use'}")
    click.echo(f"GPU kernels        {can}")
    click.echo(f"CPUs               {usable} usable, PyTorch uses {format_count(devices.threads, 'thread')}")
    _describe_rates("cpu" if devices.gpu is None else "cuda")
    if sys.gettrace() is not None:
        click.echo("a debugger or coverage tool traces this process, so exact lines cannot be recorded")


def _describe_rates(device: str) -> None:
    """The device's peak rates: measured the first time, later read from the user's cache."""
    from profkit.collect.machine.rates import keep_rates

    rates = keep_rates(device)
    products = ", ".join(f"{kind} {rate / 1e9:,.0f}" for kind, rate in rates.products.items())
    click.echo(f"memory             {rates.bandwidth / 1e9:,.1f} GB/s")
    click.echo(f"products           {products} GFLOP/s")
