"""The program that is watched, as Python shows it: its frames, objects and processes, and a guard around it."""
