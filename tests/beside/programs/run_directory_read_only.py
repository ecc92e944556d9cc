"""The file system of the run directory can only be read."""
# beside: mount run-read-only
# beside: skip record: a directory that cannot be written is refused before the program runs
# beside: skip diagnose: a directory that cannot be written is refused before the program runs
from _tiny import digest, train

digest(train()[0])
