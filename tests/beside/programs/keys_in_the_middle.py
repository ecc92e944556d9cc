"""Attributes, hooks and state keys of model, optimizer and loader are printed after each step."""
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
loader = torch.utils.data.DataLoader(range(240), batch_size=4)
for number, _ in enumerate(loader):
    step(model, optimizer)
    print(number, sorted(vars(optimizer)), sorted(optimizer.defaults), sorted(optimizer.state_dict()))
    print(sorted(optimizer.param_groups[0]), [sorted(state) for state in optimizer.state.values()])
    print(sorted(vars(model)), sorted(model.state_dict()), {k: len(v) for k, v in vars(model[0]).items() if "hooks" in k})
    print(sorted(vars(loader)), {k: len(v) for k, v in vars(optimizer).items() if "hooks" in k})
    print([type(value).__name__ for value in vars(optimizer).values()])
digest(model)
