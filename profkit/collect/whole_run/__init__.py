"""What the whole run spends its time on: a few looks a second at the main thread, from the program's start to its end.

Decisions, and why they were made:

- The stack tells the phase. Hooks would have to know each library; a stack shows ``torch.save``, a download and an
  import under whatever a framework is built on, with the program's line.
- Each look counts for the time since the one before. So the parts add up to the whole, and a call that holds Python's
  lock for seconds, which delays the look, gets its seconds.
- Another thread looks, since a timer's signal would interrupt the program's system calls. It is started below
  ``threading``, so the program does not find it among its threads.
- A look waits for Python's lock, up to 5 ms, and gets it where the program gives it up. So looks tell phases, which
  last longer, and no lines within a step: of a loop with fourteen lines of 2 ms each, such looks never saw six. Lines
  are priced from outside (``collect/stacks``).
- The frames are dropped before the lock is given up. A frame that is held would keep the program's tensors alive.
"""
