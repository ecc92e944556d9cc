"""The collector is off and must stay off; garbage in cycles is kept until the program collects it."""
import gc
import weakref

from _tiny import begin, digest, step

gc.collect()
gc.disable()


class Node:
    pass


alive = 0
model, optimizer = begin()
nodes = []
for number in range(60):
    node = Node()
    node.cycle = node
    nodes.append(weakref.ref(node))
    del node
    step(model, optimizer)
    print(number, gc.isenabled(), sum(one() is not None for one in nodes), gc.get_threshold(), gc.get_freeze_count())
gc.collect()
print(sum(one() is not None for one in nodes))
digest(model)
