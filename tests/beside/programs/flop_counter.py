"""FlopCounterMode counts the operations of each step."""
from _tiny import begin, digest, step
from torch.utils.flop_counter import FlopCounterMode

model, optimizer = begin()
for _ in range(60):
    with FlopCounterMode(model, display=False) as counter:
        step(model, optimizer)
    print(counter.get_total_flops(), sorted((name, len(of)) for name, of in counter.get_flop_counts().items()))
digest(model)
