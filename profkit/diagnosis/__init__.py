"""From facts and rules to one verdict: the recording's health, its launch, experiments, and comparisons."""
