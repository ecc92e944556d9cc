"""The ranks of a launch: which one this process is, where each records, and how much. Nothing here talks to another."""
