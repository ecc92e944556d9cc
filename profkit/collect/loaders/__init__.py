"""The program's DataLoaders: which lines make them, which batches are requested, and what their workers do."""
