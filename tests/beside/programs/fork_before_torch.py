"""A fork is made before torch is imported; both import it."""
import os

child = os.fork()
from _tiny import digest, train

if child:
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
digest(bool(child), train(60)[0])
if not child:
    os._exit(5)
