"""Files that anybody may have made: no link leads out of a run, no pipe is waited for, and none is half written. Also
profkit's own streams, whose readers may leave.

Decisions, and why they were made:

- A run's files go through one door (``profkit/core/files``). A run may be an archive from anybody, in which
  ``report.html`` is a link to another file, or a named pipe. Links out of it are neither read nor written, and nothing
  waits.
"""
