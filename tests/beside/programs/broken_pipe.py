"""Nobody reads the output, so that writing fails."""
# beside: start broken-pipe
# beside: status 1
# beside: skip diagnose: profkit's own report finds the broken pipe, too
from _tiny import train

train()
print("nobody reads this", flush=True)
