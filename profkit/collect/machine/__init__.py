"""The machine that the program runs on: its settings, load, devices, and what it can do in a second."""
