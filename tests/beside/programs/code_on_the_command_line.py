"""The program is given by -c, so that its lines have no file."""
# beside: start code
from _tiny import digest, train

model, optimizer = train()
digest(model)
