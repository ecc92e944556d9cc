"""After its steps the program becomes another one."""
# beside: status 3
import os

from _tiny import digest, train

digest(train()[0])
os.execvp("sh", ["sh", "-c", "echo became a shell; exit 3"])
