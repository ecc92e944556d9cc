"""What the whole run spends its time on: a few looks a second at the main thread, from the program's start to its end.

Decisions, and why they were made:

- The stack tells the phase. Hooks would have to know each library; a stack shows ``torch.save``, a download and an
  import under whatever a framework is built on, with the program's line.
- Each look counts for the time since the one before. So the parts add up to the whole, and a call that holds Python's
  lock for seconds, which delays the look, gets its seconds.
- Another thread looks, since a timer's signal would interrupt the program's system calls. It is started below
  ``threading``, so the program does not find it among its threads.
- The stack of a thread that waits for another, or for a coroutine, does not show what that does: their frames are put
  on top of it (``waiting.py``). So training in a thread, and an upload that is awaited, have their own lines.
- A look takes 0.2 ms of CPU time, of which 60 µs are for waking up and the rest for code that is out of the caches. So
  it comes less often as the run goes on.
- A look waits for Python's lock, up to 5 ms, and gets it where the program gives it up. So looks tell phases, which
  last longer, and no lines within a step: of a loop with fourteen lines of 2 ms each, such looks never saw six. Lines
  are priced from outside (``collect/stacks``).
- How far that leads astray was measured by a loop of pure Python, a short operator and a long one, with clocks around
  them (``tests/benchmarks/bench_looks.py --shares``). Python had 1, 12 and 51 % of the time, and 0, 6 and 42 % of the
  looks. What it lacks is with the operators behind it: the short one had 1, 2 and 3 % of the time, and 1, 7 and 12 % of
  the looks. So a line may have the time of the Python just before it in the same step.
- No correction was found. How long a look waited for the lock tells whether the thread held it then: of looks that
  waited less than .3 ms one in a hundred was at the Python. But it does not tell at which line, and a busy machine lets
  looks wait as well. So they cannot be shared out anew. Nor can a timer's signal or ``faulthandler`` be used (see
  ``collect/stacks``).
- There is a way without that bias: pending calls (``Py_AddPendingCall``), which run between two instructions, if they
  are asked for without the lock. Of 21 and 74 % Python they saw 16 and 71, and looks 7 and 45
  (``tests/benchmarks/bench_pending.py``). From Python alone that takes a timer of glibc's whose thread is not Python's,
  and a KeyboardInterrupt within such a call is lost, as ctypes prints it. So it needs a compiled part, which profkit
  does not have. Also, a pending call never meets a call of C: looks would still have to tell what that waits for.
- Garbage collections are known from the collector, not from looks: it holds the lock until it is done, so a look meets
  whatever line comes next. Only a run that is watched as a whole has the callback.
- The ends of steps are noted where others notice them (``step_times.py``), never by the looks.
- The frames are dropped before the lock is given up. A frame that is held would keep the program's tensors alive.
"""
