"""profkit for coding agents: a server of the Model Context Protocol, and a skill that teaches the loop.

``work.py`` does what the tools do and knows nothing of the protocol; ``server.py`` alone imports the `mcp` package.

Decisions, and why they were made:

- Five tools and no more: each costs an agent tokens in every turn.
- A program runs in a copy of its folder, also to be recorded. So the tools that look leave no trace.
- Only paths below the folder in which the server was started, with links resolved. Nothing is written there without
  ``--allow-write``.
- An answer has at most 2,000 tokens, and says how to ask for the next page.
"""

from __future__ import annotations

from pathlib import Path

SKILL_FILE = Path(__file__).with_name("SKILL.md")


def read_skill() -> str:
    """What an agent should know before it uses profkit, as a file with front matter."""
    return SKILL_FILE.read_text(encoding="utf-8")
