"""The number of open files is limited, and all that are left get used."""
import os
import resource

from _tiny import begin, digest, step

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
model, optimizer = begin()
for number in range(60):
    if number == 3:
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            print(error.strerror)
    step(model, optimizer)
    if number == 40:
        for one in taken:
            os.close(one)
print(len(taken) > 30)
digest(model)
