"""state_dict hooks, load_state_dict and parametrizations are used while training."""
import torch
from _tiny import begin, digest, step
from torch.nn.utils import parametrizations

model, optimizer = begin()
parametrizations.weight_norm(model[0])
optimizer = torch.optim.Adam(model.parameters(), 0.01)
seen = []
model.register_state_dict_post_hook(lambda module, state, prefix, local: seen.append(len(state)))
model.register_load_state_dict_post_hook(lambda module, keys: seen.append(keys))
for number in range(60):
    step(model, optimizer)
    if number % 10 == 6:
        state, of_optimizer = model.state_dict(), optimizer.state_dict()
        model.load_state_dict(state)
        optimizer.load_state_dict(of_optimizer)
print(seen)
digest(model)
