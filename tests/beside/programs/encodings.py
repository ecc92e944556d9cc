"""Text outside ASCII, surrogates and binary data are written to both streams."""
import locale
import sys

from _tiny import begin, digest, step

print(sys.stdout.encoding, sys.stderr.errors, locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL))
locale.setlocale(locale.LC_ALL, "C")
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6:
        sys.stdout.reconfigure(encoding="latin-1", errors="replace", line_buffering=True)
        sys.stderr.reconfigure(encoding="latin-1", errors="backslashreplace")
print("ümläut 漢字 \x1b[31mred\x1b[0m")
print("ümläut 漢字", file=sys.stderr)
sys.stdout.buffer.write(b"\xff\xfe\x00bytes\n")
sys.stdout.flush()
digest(model)
