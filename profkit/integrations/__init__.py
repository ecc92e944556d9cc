"""profkit inside other tools: training frameworks, pytest, notebooks. None of them is a dependency of profkit.

A module here imports its tool, so it is imported by those who use that tool, and by nothing else in profkit.
"""
