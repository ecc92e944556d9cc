"""profkit memory-plan TARGET"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from profkit.cli._recording import PROGRAM_FAILED
from profkit.core.errors import UsageError

if TYPE_CHECKING:
    from profkit.memory_planner.plan import InputSpec

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>(?:B|\d+)(?:x(?:B|\d+))*)?(?::(?P<dtype>\w+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i?))?B?", re.IGNORECASE)


@click.command("memory-plan")
@click.argument("target")
@click.option("--batch", type=click.IntRange(1, 1 << 20), required=True, help="Samples in a batch.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SHAPE[:DTYPE]",
    help="The shape of one sample's input, such as 3x224x224 or 1024:int64. Repeat it for several inputs. "
    "ids=1024:int64 passes one by keyword; in 100xBx32 the batch B is not the first dimension.",
)
@click.option(
    "--optimizer",
    default="adamw",
    show_default=True,
    metavar="NAME",
    help="A class of torch.optim, such as sgd, adam or adagrad; append -momentum, -fused, -foreach or -loop "
    "for that form.",
)
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    type=click.Choice(["fp32", "bf16", "fp16", "bf16-amp", "fp16-amp"]),
    help="bf16: everything in bfloat16, parameters too; bf16-amp: autocast over float32 parameters.",
)
@click.option(
    "--device",
    default="cuda",
    show_default=True,
    type=click.Choice(["cuda", "hopper", "cpu"]),
    help="Whose memory rules to follow; hopper: an H100 or later, where cuBLAS takes more.",
)
@click.option("--fits", metavar="SIZE", help="Find the largest batch for a device with this memory: 24GB, 80GiB.")
@click.option("--inference", is_flag=True, help="Plan a forward pass without gradients instead of training.")
@click.option("--peak-only", is_flag=True, help="Skip the effect of changes, which takes a run for each.")
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    help="What goes to stdout.",
)
def command(
    target: str, inputs: tuple[str, ...], fits: str | None, peak_only: bool, format_name: str, **wishes: Any
) -> None:
    """Plan the peak memory of a training step, without running it and without the memory.

    TARGET is package.module:factory or file.py:factory: a class or function that returns a model; or a model and its
    inputs, as tensors or as a function of the batch size; and optionally a third value, a function from the model's
    output to the loss. The operators run on tensors without data, so a laptop can plan a model of any size.

    \b
    profkit memory-plan torchvision.models:resnet50 --input 3x224x224 --batch 128 --fits 24GB
    profkit memory-plan train.py:make_model --batch 32 --optimizer adamw --precision bf16-amp
    """
    from profkit.cli._output import say, terminal_settings
    from profkit.memory_planner.parent import make_plan
    from profkit.memory_planner.plan import PlanRequest
    from profkit.memory_planner.report import render_memory_plan

    request = PlanRequest(
        target=target,
        inputs=tuple(parse_input(one) for one in inputs),
        fits_bytes=parse_size(fits) if fits is not None else 0,
        changes=not peak_only,
        **wishes,
    )
    answer = make_plan(request)
    if answer.refused:
        raise UsageError(answer.refused)
    if answer.plan is None:
        click.echo(answer.traceback.rstrip(), err=True)
        click.echo(f"profkit: {target}: the program itself failed", err=True)
        sys.exit(PROGRAM_FAILED)
    width, _ = terminal_settings()
    say(render_memory_plan(answer.plan, format_name, width=width).removesuffix("\n"))


def parse_input(text: str) -> InputSpec:
    """``'3x224x224'``, ``'ids=1024:int64'``, ``'100xBx32'``. Raises `UsageError` for anything else."""
    from profkit.memory_planner.plan import DTYPES, InputSpec

    match = _INPUT.fullmatch(text)
    sizes = (match["shape"] or "").split("x") if match else []
    if match is None or not text or sizes.count("B") > 1 or "0" in sizes:
        raise UsageError(f"--input {text}: give the shape of one sample, like 3x224x224, 1024:int64 or ids=1024:int64")
    if match["dtype"] and match["dtype"] not in DTYPES:
        raise UsageError(f"--input {text}: {match['dtype']} is none of {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in sizes if size not in ("", "B"))
    return InputSpec(shape, sizes.index("B") if "B" in sizes else 0, match["dtype"] or "", match["name"] or "")


def parse_size(text: str) -> int:
    """``'24GB'`` → ``24_000_000_000``, ``'80GiB'`` in powers of 1024. Raises `UsageError` for anything else."""
    match = _SIZE.fullmatch(text.strip())
    size = 0
    if match is not None:
        power = " KMGT".index((match[2] or " ").upper())
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    if size <= 0:
        raise UsageError(f"--fits {text}: give a size such as 24GB or 80GiB")
    return size
