"""A diagnosis for other eyes: what it says of the program, and nothing of whose it is or where it lies."""
