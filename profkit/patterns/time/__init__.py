"""Where the time of a step goes: shares, hottest lines, waits and their causes, idling.

Decisions, and why they were made:

- Device idle time goes to one reason, the one that explains most (``idling.py``): waiting for data, compiling, the
  allocator, a wait, the optimizer, launching, and only then the surrounding function.
- Each moment of the measured steps belongs to one line (``divided.py``): that of the device's work, else that of the
  host. The located step's times are the tracer's, so they only divide the gap between two operators among its lines.
- Whether a line's result is needed in each step only its text can tell (``seldom_needed.py``); what the line takes only
  the recording can. Both must agree, and a line that did not run in the located step is left out.
"""
