"""A process group of one process averages gradients with DistributedDataParallel."""
import os
import tempfile

import torch
from _tiny import begin, digest, step

place = tempfile.mkdtemp()
torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=0, world_size=1)
model, optimizer = begin()
parallel = torch.nn.parallel.DistributedDataParallel(model)
for _ in range(60):
    step(parallel, optimizer)
print(torch.distributed.get_world_size())
torch.distributed.destroy_process_group()
os.path.exists(f"{place}/meeting") and os.unlink(f"{place}/meeting")
os.rmdir(place)
digest(model)
