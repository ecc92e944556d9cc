"""profkit inside other tools: training frameworks, pytest, notebooks. profkit depends on none of them.

A module here imports its tool, so only users of that tool import it, and nothing else in profkit does.
"""
