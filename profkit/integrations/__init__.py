"""profkit inside other tools: training frameworks, pytest, notebooks. profkit depends on none of them.

A module here imports its tool, so only users of that tool import it, and nothing else in profkit does.

Decisions, and why they were made:

- Lightning's callback gets its base class when it is made. ``lightning`` and ``pytorch_lightning`` each have one, and a
  Trainer accepts only its own.
"""
