"""What a memory snapshot shows: what was held when and what for, and how the rest of the memory lies free.

Decisions, and why they were made:

- Bytes of a memory snapshot are exactly the allocator's (``allocations.py``). The history has the requested size; what
  it took follows from the allocator's rounding and splitting, given the neighbours at that moment.
- An allocation without a stack is the backward pass's if others have one, because its threads run no Python. For frees
  this needs another free with a stack (``origins.py``).
"""
