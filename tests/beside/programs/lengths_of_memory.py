"""The allocations of the program are counted by tracemalloc, and its objects by sys.getallocatedblocks."""
import tracemalloc

from _tiny import begin, digest, step

model, optimizer = begin()
tracemalloc.start(1)
kept = []
for number in range(60):
    step(model, optimizer)
    kept.append(bytearray(10_000))
snapshot = tracemalloc.take_snapshot()
mine = snapshot.filter_traces([tracemalloc.Filter(True, __file__)])
print(sum(one.size for one in mine.traces if one.size > 9000), tracemalloc.is_tracing())
others = {one.traceback[0].filename.rpartition("/profkit/")[2] for one in snapshot.traces if "/profkit/" in one.traceback[0].filename}
print(sorted(others))
tracemalloc.stop()
digest(model)
