"""A diagnosis to share: what it says about the program, but not whose it is or where it lies.

Decisions, and why they were made:

- A shared page is made from text alone (``anonymous.py``). A diagnosis may come from another machine, so the file
  system is not asked what is a path or a name.
"""
