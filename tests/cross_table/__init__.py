"""Every rule on every recording at hand: where it should find something, and where it does."""
