"""Model, optimizer and loader are pickled, copied and compared in the middle of training."""
import copy
import io
import pickle

import torch
from _tiny import begin, digest_of, step

model, optimizer = begin()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 8)), batch_size=4)
batches = iter(loader)
for number in range(60):
    next(batches, None)
    step(model, optimizer)
    sizes = []
    for one in (model, optimizer, loader):
        text = pickle.dumps(one)
        sizes.append(len(text))
        again = pickle.loads(text)
        twin = copy.deepcopy(one)
        print(number, type(again).__name__, sorted(set(vars(again)) ^ set(vars(one))), sorted(set(vars(twin)) ^ set(vars(one))))
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    print(number, sizes, digest_of(saved.getvalue()))
twin, of_twin = copy.deepcopy((model, optimizer))
step(twin, of_twin)
print(digest_of(model, twin))
