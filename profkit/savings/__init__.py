"""Savings: the step replayed with a fault taken out, and the time that gives back."""
