from dataclasses import dataclass


@dataclass
class Options:
    n_chars: int = 4000
    n_hidden: int = 96
    n_steps: int = 20
    batch: int = 24
    length: int = 64
