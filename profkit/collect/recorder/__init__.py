"""One recording of a program, from its start to its files."""
