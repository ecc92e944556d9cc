"""How much of a result is read: by slices and diagonals (`parts`), by index (`picked`), and what goes into it
(`before`)."""
