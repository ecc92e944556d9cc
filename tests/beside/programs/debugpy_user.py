"""The program listens for a debugger, which traces all of it."""
# beside: needs debugpy
import debugpy
from _tiny import digest, train

debugpy.configure(subProcess=False)
debugpy.trace_this_thread(True)
print(debugpy.is_client_connected())
digest(train()[0])
