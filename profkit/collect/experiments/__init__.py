"""Experiments: what a program does and what it could do instead, timed side by side in a process of its own."""
