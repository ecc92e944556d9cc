"""What rules and reports ask of a memory snapshot: the lines that hold memory, and what they hold.

Decisions, and why they were made:

- A snapshot shows who allocated, not who holds (``rounds.py``). Growth means lines that take turns to leave memory
  behind, up to the end of the history. A single line may be the layers of one pass.
"""
