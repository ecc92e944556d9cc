"""What a memory snapshot shows: what was held when and what for, and how the rest of the memory lies free."""
