"""Programs as people write them, most with one fault on a marked line; ``python -m tests.programs`` tries them all."""
