"""Limits, niceness, umask, working directory, session, group and parent as the program finds them."""
import os
import resource

from _tiny import digest, train

print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_STACK))
mask = os.umask(0o22)
print(oct(mask), os.nice(0), os.getcwd(), os.isatty(1), os.isatty(2))
print(os.getpid() == os.getsid(0), os.getpgrp() == os.getsid(0), sorted(os.sched_getaffinity(0)))
digest(train()[0])
print(os.getcwd(), os.umask(mask) == 0o22)
