"""Steps alternate between gradients on, off and inference mode, and the modes are printed."""
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    with torch.no_grad():
        output = model(torch.ones(1, 8))
        print(output.requires_grad, torch.is_grad_enabled())
    with torch.inference_mode():
        print(model(torch.ones(1, 8)).is_inference())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        print(model(torch.ones(1, 8)).dtype, torch.is_autocast_enabled("cpu"))
torch.set_grad_enabled(False)
digest(model)
