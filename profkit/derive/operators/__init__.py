"""The operators: what each works on, and the line of the program that it belongs to."""
