"""A folder per room; beside them benchmarks, whole programs right and wrong, and what records and measures them.

Decisions, and why they were made:

- Tests of scenarios and programs fork from a process that has imported PyTorch (``tests/forks.py``), because the import
  takes longer than most of them. The garbage collector skips what was imported, as copying it took 40 % of a small
  recording. What the import itself affects (an order, a first step, the collector's own time) is tested in separate
  processes.
- Ranks of a launch fork, too (``launch`` in ``tests/forks.py``), torchrun's included: a launch of two then takes 2 s of
  the processors instead of 14. A few launches, and the tests that profkit changes nothing in a program, start processes
  as a user does.
- Tests judge recordings that are made once (``tests/recordings.py``). Recording takes ten times as long as judging, and
  depends only on ``collect`` and the program. A failing test discards its recording, so one disturbed by the machine is
  never kept.
- A test whose outcome depends on when the machine does what says so (``races(why=…)``). It runs a second time if it
  fails, and the summary lists it as rerun; what fails twice is a fault. All others run once: a rerun would hide each
  race that is lost one time in ten.
- ``Popen`` is replaced only where forks take the place of interpreters (``tests/forks.py``). Kept recordings could not:
  what a launch leaves depends on the collecting code, and would be recorded again after each of its changes.
"""
