"""What the user's names keep alive at the end of a step."""
