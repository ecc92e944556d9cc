"""The file system of the run directory has no room for a trace."""
# beside: mount run-scarce
from _tiny import digest, train

digest(train()[0])
