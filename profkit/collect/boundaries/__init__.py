"""Where a step of the program ends, and what each step is to the recording."""
