"""What goes over the bus between the host and the device, and what is sent.

Decisions, and why they were made:

- A transfer has at most one fault, and each fault one rule (``faults.py``). An unnecessary transfer comes before one
  done badly. ``host-sync-in-step`` leaves its waits out, but they keep their part of the joint price.
"""
