"""What a fix would give back: the recorded step is replayed without the fault.

Decisions, and why they were made:

- ``launch-bound`` judges the shortest possible step (``least_ns`` in ``step_time.py``). An estimate of the recording's
  cost may leave the step twice too long.
- The replay is the dependency graph (``streams.py``). Host threads that take turns are one timeline and each stream
  runs in order, joined by waits, full queues and streams that wait for each other. Without an edit it reproduces every
  recording.
"""
