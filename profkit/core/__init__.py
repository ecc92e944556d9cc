"""What every other room may use: errors, units, files, the guard around unforeseen failures.

Decisions, and why they were made:

- Values inside the pipeline are frozen ``msgspec.Struct``s; those for users are frozen dataclasses. Defining a struct
  class takes 0.03 ms instead of 0.6, and a diagnosis imports seventy of them.
- A bug in profkit costs only its own part of a report (``failures.py``). One line names the part and where to report
  it; with ``PROFKIT_STRICT=1``, which the tests set, the error is raised.
- Other processes are plain forks with two pipes (``forks.py``), and the text report uses ``textwrap``. Importing
  multiprocessing and rich took 60 of the 630 ms of a diagnosis of 50 MB.
"""
