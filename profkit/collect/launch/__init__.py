"""The process that runs a program or a scenario and records it, and its parent process."""
