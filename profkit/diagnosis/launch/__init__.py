"""From the recordings of many ranks, wherever they lie, to a diagnosis of their launch."""
