"""The device's side: what launched its work, when it was busy, and where the host waits for it.

Decisions, and why they were made:

- A step is over when host and device are (``completion.py``). Device work counts to the step that launched it;
  ``start_ns`` and ``end_ns`` stay the host's, because host events belong to the step they start in.
- Figures of several GPUs are the busiest GPU's (``busy.py``). Two that take turns would look like one that never rests.
- A first call is recognised by later calls of the same name (``first_calls.py``). Most start-up work leaves no event:
  cuBLAS sets itself up inside ``aten::mm``, CUPTI inside the first launch of a recording.
- An unrecorded accelerator is recognised by its traces on the host (``accelerator.py``). Rules about computation
  abstain, and no report calls such a recording clean.
"""
