"""The server in a real process, through the client of the `mcp` package."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

mcp = pytest.importorskip("mcp")

from profkit.report.agent import MOST_CHARACTERS  # noqa: E402
from tests.integrations.agents.test_agents import RECORDED  # noqa: E402

PROGRAM = """\
import gc
import torch

torch.manual_seed(0)
junk = [[] for _ in range(300_000)]
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
print(f"loss {loss.item():.6f}")
"""


def talk(folder: Path, conversation: Callable[..., Awaitable[None]], *options: str) -> None:
    """Start the server in a folder and talk to it. ``ask`` gives the text of an answer and whether it is an error."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = ["-m", "profkit", "mcp", *options]
    server = mcp.StdioServerParameters(command=sys.executable, args=command, cwd=folder, env=environment)

    async def main() -> None:
        told: list[str] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            told.append(message or "")

        async with mcp.Client(server) as client:

            async def ask(tool: str, **arguments: object) -> tuple[str, bool]:
                answer = await client.call_tool(tool, arguments, progress_callback=note)
                text = "".join(part.text for part in answer.content)
                assert len(text) <= MOST_CHARACTERS + 200
                return text, bool(answer.is_error)

            await conversation(client, ask, told)

    asyncio.run(main())


def test_five_tools_and_no_more_read_what_is_there(tmp_path):
    shutil.copytree(RECORDED, tmp_path / "traces" / "run")

    async def conversation(client, ask, told):
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"diagnose", "explain", "fix_preview", "compare", "list_runs"}
        assert all(tool.annotations.read_only_hint for tool in tools)
        listed, failed = await ask("list_runs")
        assert not failed
        report, failed = await ask("diagnose", target=listed.split()[0])
        assert not failed
        assert report.startswith("verdict: ")
        assert told == ["reading the recording"]
        for tool, arguments, said in (
            ("diagnose", {"target": "../x.py"}, "lies outside of"),
            ("diagnose", {"target": "x.py"}, "no such file or folder"),
            ("diagnose", {"target": listed.split()[0], "page": 9}, "there is no page 9; the answer has 1"),
            ("explain", {"what": "nothing"}, "no rule is called 'nothing'"),
            ("fix_preview", {"target": "x.py", "write": True}, "`profkit mcp --allow-write`"),
            ("compare", {"before": "a", "after": "b"}, "no such file or folder"),
        ):
            text, failed = await ask(tool, **arguments)
            assert failed
            assert said in text

    talk(tmp_path, conversation)


@pytest.mark.slow
def test_from_a_slow_program_to_a_proven_patch_in_three_calls(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)

    async def conversation(client, ask, told):
        report, _ = await ask("diagnose", target="train.py")
        assert "fault garbage-collection-in-step" in report
        assert "-    gc.collect()" in report
        assert "prove: profkit fix train.py --select garbage-collection-in-step" in report
        page, _ = await ask("explain", what="garbage-collection-in-step")
        assert "gc.collect()" in page
        fixed, failed = await ask("fix_preview", target="train.py", rule="garbage-collection-in-step", write=True)
        assert not failed, fixed
        assert "1. garbage-collection-in-step, train.py:13: held" in fixed
        assert fixed.endswith("\nwritten: train.py\n")
        assert told[0] == "recording the program"

    talk(tmp_path, conversation, "--allow-write")
    assert (tmp_path / "train.py").read_text() == PROGRAM.replace("    gc.collect()\n", "").replace("import gc\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
