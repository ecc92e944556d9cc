"""Python loops: their rounds, what their source says, and what they compute."""
