"""The steps: where they lie, which of them repeat each other, and what recording added to them."""
