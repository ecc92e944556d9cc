"""The account of the whole run."""
