"""What the data flow of the located step shows: calls that do not need each other, and layers on copies of rows.

Decisions, and why they were made:

- A trace does not say which tensor an operator takes; `profkit.collect.tensors.flow` does, for one step, by memory.
  Without it these patterns find nothing, or leave the judgement to the source (`profkit.patterns.loops`).
- A call that only adds up results, or keeps them, needs no other one. So chains are counted through products of
  matrices alone.
"""
