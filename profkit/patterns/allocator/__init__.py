"""What rules and reports ask of a memory snapshot: the lines that hold memory, and what they hold."""
