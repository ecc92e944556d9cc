"""The program's DataLoaders: who makes them, what is asked of them, and what their workers do."""
