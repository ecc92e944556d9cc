"""Memory that outlives its step, and who holds it."""
