"""The process that runs a program or a scenario and records it, and its parent process.

Decisions, and why they were made:

- The finder that waits for torch stays until torch was executed (``import_watch.py``). Most libraries first ask with
  ``find_spec`` whether it is there.
- CPU time decides whose work was recorded. A program without steps whose children used more CPU time than itself only
  started the work. profkit never records a process that it was not asked to.
"""
