"""The steps: where they lie, which of them repeat each other, and what recording added to them.

profkit's own recordings mark their steps; ``collect/boundaries`` decides where they end. For any other trace
``boundaries.py`` decides.

Decisions, and why they were made:

- A step may be too large to be recorded, and then rounds of a loop in it are all there is (``ongoing.py``). Together
  with imports and set-up they were 12 % of a recording, and a fault that took half of them was of low severity. They
  are one step: lines are marked in some and no longer in others, whose median showed a sampler's loop as nothing.
- Layers repeat as steps do (``layers.py``). Frames distinguish them; without frames a pass shows by its ends, a lookup
  or a product of a shape that no repeat has.
- The recording's cost is removed event by event (``distortion.py``), calibrated by steps without the profiler. Without
  such steps it is estimated for a host that launches work: 2 µs an operator or frame, 4 µs a runtime call, as measured
  on an H100's host.
"""
