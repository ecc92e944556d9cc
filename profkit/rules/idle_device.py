"""The machine has a GPU that the program never uses.

What it detects
A device that the driver shows to the process and on which no kernel of any process was seen during the whole run. It is
looked at once a second or less often. Four cases: PyTorch was built for no GPU; the environment hides all devices; the
program never asks for one; or it uses some and not the others, although nothing hides them. A device that
`CUDA_VISIBLE_DEVICES` leaves out while others are used was meant to be left out.

Why is this bad?
A GPU that was asked for is taken from others, and what it could compute runs elsewhere. In a study of 400 jobs with
little use of their GPUs, one asked for eight GPUs and started four processes, and one ran 481 minutes on the CPU
because `CUDA_VISIBLE_DEVICES` was empty (Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs,
ICSE 2024).

Example
    torchrun --nproc_per_node=4 train.py  # on a machine with eight GPUs

Use instead
    torchrun --nproc_per_node=gpu train.py

How the saving is estimated
Not at all: what the program would gain on the device was not run. So this is an opportunity of medium severity.
"""

from __future__ import annotations

from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    pick_form,
    rule,
)
from profkit.run.whole_run import DeviceChoice, DeviceUse

_LEAST_SAMPLES = 5
"""Five seconds and more: a shorter run may use the device later."""
_OWN_BYTES = 256 << 20
"""A context of CUDA takes more memory than this, so less growth means that nobody began to use the device."""
_HIDDEN = frozenset(("", "-1", "none", "void", "nodevfiles"))
"""Values of ``CUDA_VISIBLE_DEVICES`` that hide every device."""


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def idle_device(facts: Facts) -> Suspicions:
    """One finding for all idle devices."""
    account = facts.account
    if not account.devices:
        raise CannotLook(account.no_devices or "the devices of the machine were not looked at")
    if any(len(device.samples) < _LEAST_SAMPLES for device in account.devices):
        raise CannotLook("the devices were looked at too seldom, as the run was short")
    if any(sample.busy < 0 for device in account.devices for sample in device.samples):
        raise CannotLook("the driver does not tell how busy the devices are")
    idle = [device for device in account.devices if _is_idle(device)]
    told = _tell(account.choice, idle, len(account.devices)) if idle else None
    if told is not None:
        yield Suspicion(
            message=f"No kernel was seen on {_name(idle)} during the whole run: {told[0]}.",
            fix=told[1],
            severity=Severity.MEDIUM,
            count=1,
            confidence=0.8,
            evidence={"idle_devices": len(idle), "devices": len(account.devices)},
        )


def _is_idle(device: DeviceUse) -> bool:
    used = [sample.used_bytes for sample in device.samples]
    return max(sample.busy for sample in device.samples) <= 0 and max(used) - used[0] < _OWN_BYTES


def _tell(choice: DeviceChoice, idle: list[DeviceUse], count: int) -> tuple[str, str] | None:
    """Why the devices are idle, and what to do; None if they were meant to be."""
    is_hidden = choice.visible is not None and choice.visible.strip().lower() in _HIDDEN
    if choice.was_initialised:
        left_out = choice.visible is not None
        some = format_count(count - len(idle), "device")
        does = f"the program uses {some} of {count}"
        start = "Start a process for each device, or ask for as many as are used."
        return None if left_out or len(idle) == count else (does, start)
    if choice.build is None:
        return "the program does not use PyTorch", "Run it on a machine without a GPU."
    if not choice.build:
        return (
            "this PyTorch was built without CUDA",
            "Install a build with CUDA (pytorch.org/get-started), then move the model and the batches to the device.",
        )
    if is_hidden:
        return "CUDA_VISIBLE_DEVICES hides them all", "Unset CUDA_VISIBLE_DEVICES, or name the devices to use."
    return "the program never asked for one", "Move the model and the batches to the device: `.to('cuda')`."


def _name(idle: list[DeviceUse]) -> str:
    numbers = ", ".join(str(device.index) for device in idle)
    return f"{pick_form(len(idle), 'GPU', 'GPUs')} {numbers} ({idle[0].name})"
