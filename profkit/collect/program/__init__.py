"""The watched program as Python sees it: its frames, objects and processes, and a guard around it.

Decisions, and why they were made:

- SIGTERM is handled while something recorded is unwritten, unless the program has a handler. The recording is written,
  then the default action ends the process with the same status. The program sees the default action, as many handlers
  call the one before them if there is one (``default_actions.py``).
"""
