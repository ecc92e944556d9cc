"""What several rules ask of the facts, and reports too: places in the code, idle time, loops, memory that is held."""
