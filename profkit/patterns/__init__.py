"""What several rules look for in the facts: lines, loops, transfers, waits, memory that is held.

Decisions, and why they were made:

- A fix names what the recorded PyTorch has (``releases.py``). If the release is unknown, the fix says which release an
  option needs.
"""
