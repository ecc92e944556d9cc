"""Experiments: what a program does and what it could do instead, timed side by side in a process of its own.

Decisions, and why they were made:

- An experiment compares the fastest turns of both forms. While other programs have the processor, no turn is fast: the
  middle round counts then, in one thread and without its waits, and health says that the range is wide. If a change
  gains nothing on this machine, health says so, and ``verify`` does not count it.
- ``--measure`` replaces the model, not the replay. A rule provides an ``Experiment``, which runs in its own process.
  Anybody may have made the recording, so only operators listed in ``experiment.py`` are looked up.
"""
