"""The machine that the program runs on: its settings, load, devices, and what it can do in a second.

Decisions, and why they were made:

- What promises a cost counts CPU time, what is patience counts time on the wall, less what the thread waited for a busy
  CPU (``patience.py``).
"""
