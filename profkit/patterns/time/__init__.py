"""Where the time of a step goes: shares, hottest lines, waits and their causes, idling.

Decisions, and why they were made:

- Device idle time goes to one reason, the one that explains most (``idling.py``): waiting for data, compiling, the
  allocator, a wait, the optimizer, launching, and only then the surrounding function.
"""
