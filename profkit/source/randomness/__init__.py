"""What the text says of random numbers: which are seeded, and which are drawn."""
