"""What several rules, and the reports, ask of the facts: places in the code, idle time, loops, memory that is held."""
