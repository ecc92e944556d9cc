"""Damaged and hostile inputs of every kind that profkit reads, made by structure: each is read, or refused in one line.

``python -m tests.fuzzing KIND --count N`` makes that many, reads each with ``PROFKIT_STRICT=1`` and prints what broke,
with the number that makes it again (``--only NUMBER``). Each kind of input is a file. A selection runs with the tests.
"""
