"""One recording of a program, from its start to its files.

Decisions, and why they were made:

- ``recorder.py`` decides what a boundary means, ``phase_recordings.py`` what each phase records. The allowance and the
  bounds decide what is affordable, because they have the figures.
- Names are inspected where it costs little: after the last measured step if it takes more than a hundredth of a step.
  It leaves cold caches, after which a step of half a millisecond took half as long again.
- The recorder announces that it is over, and the tracer that its lines are used up. Both happen where no caller could
  ask: in a finalizer, in a line of the program, between two bytecodes. On a recorded thread other than the main one,
  the tracer's last line is the only place where profkit may act.
- A window on demand needs only a signal handler. SIGUSR1 sets a flag, and listening resumes between two bytecodes of
  the main thread. Under Slurm profkit leaves the signal alone, because programs set their handlers late.
- What passes between the steps has its own recorder (``interlude_recording.py``), so that an error in it leaves the
  steps' recording as it is. That one stops listening meanwhile: two hooks on an optimizer, the first of which goes away
  at a step, would break PyTorch's loop over them.
- Rounds of a loop end steps within a callback of the tracer. A pending call there would run in the callback itself.
- A program is ended by an exception that another thread sets. Steps often end in a finalizer, whose exceptions Python
  ignores.
- Nothing between ``pause`` and ``resume`` is recorded. Otherwise an evaluation would fill the recording.
- Garbage is collected once after the last recorded step to show what only the collector frees, unless the program has
  switched the collector off.
- Steps timed after the recording are only for ``compare``. A program may slow down meanwhile, so they are no reference
  for the recorded ones.
"""
