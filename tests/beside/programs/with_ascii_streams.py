"""The environment gives the streams an encoding that cannot write the program's text."""
# beside: environment PYTHONIOENCODING=ascii:backslashreplace
import sys

from _tiny import digest, train

print("ümläut 漢字", sys.stdout.encoding)
print("ümläut 漢字", file=sys.stderr)
digest(train()[0])
