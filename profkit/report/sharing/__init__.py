"""A diagnosis to share: what it says about the program, but not whose it is or where it lies."""
