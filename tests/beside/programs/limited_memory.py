"""The address space is limited to a modest size."""
import resource

limit = 6 * 2**30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from _tiny import digest, train

digest(train()[0])
try:
    bytearray(8 * 2**30)
except MemoryError as error:
    print("MemoryError", error)
