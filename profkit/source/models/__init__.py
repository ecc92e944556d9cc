"""What the text says of a program's models: which line makes a layer."""
