"""The watched program as Python sees it: its frames, objects and processes, and a guard around it."""
