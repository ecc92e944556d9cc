"""Python loops: their rounds, what their source says, and what they compute.

Decisions, and why they were made:

- Whether the rounds of a loop depend on each other is read from its source (``independent_rounds.py``). A trace does
  not say which tensor an operator takes; what the source cannot rule out counts as a dependency.
"""
