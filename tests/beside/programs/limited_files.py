"""Files may have no more than 4 kB."""
import resource
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from _tiny import begin, digest, step

model, optimizer = begin()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for _ in range(60):
    step(model, optimizer)
try:
    with open("file.txt", "wb") as file:
        file.write(b"0" * 5000)
except OSError as error:
    print(error.strerror)
digest(model)
