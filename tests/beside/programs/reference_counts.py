"""Reference counts of model, weights, gradients and loss are printed in each step."""
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    loss = step(model, optimizer)
    weight = model[0].weight
    counts = [sys.getrefcount(one) for one in (model, model[0], weight, weight.grad, optimizer, loss)]
    print(number, counts, weight._version)
digest(model)
