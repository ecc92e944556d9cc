"""Intervals of time and events inside events.

Decisions, and why they were made:

- A range outlives the frame that began it (``outliving.py``). With ``with_stack=True`` PyTorch's own ``__enter__``
  returns before the range ends, so the tree ends that frame where the range begins.
"""
