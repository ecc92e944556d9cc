"""The operators: what each works on, and the line of the program that it belongs to.

Decisions, and why they were made:

- A closure in ``optimizer.step(closure)`` is the program's code (``updates.py``). Lightning runs every forward and
  backward pass in one.
"""
