"""The working directory is on a full file system."""
# beside: mount full
from _tiny import digest, train

try:
    with open("file.txt", "w") as file:
        file.write("text" * 5000)
except OSError as error:
    print(error.strerror)
digest(train()[0])
