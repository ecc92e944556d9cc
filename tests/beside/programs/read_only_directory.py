"""The working directory is on a file system that can only be read."""
# beside: mount read-only
from _tiny import digest, train

try:
    open("file.txt", "w").close()
except OSError as error:
    print(error.strerror)
digest(train()[0])
