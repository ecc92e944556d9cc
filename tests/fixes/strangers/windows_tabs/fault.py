# -*- coding: utf-8 -*-
"""Kürzer als nötig: ein Netz für Punkte."""
import gc, sys
import torch
from torch.nn import Linear, ReLU, Sequential

torch.manual_seed(0)
netz = Sequential(Linear(40, 300), ReLU(), Linear(300, 300), ReLU(), Linear(300, 2))
opt = torch.optim.Adam(netz.parameters(), 1e-3)
worte = [{"nummer": n, "text": str(n)} for n in range(15000)]

def schritt(x):
	opt.zero_grad()
	verlust = (netz(x) - x[:, :2]).square().mean()
	verlust.backward()
	opt.step()
	gc.collect()  # expect: garbage-collection-in-step
	return verlust.item()

for i in range(40):
	letzter = schritt(torch.randn(256, 40))
print("verlust %.5f" % letzter, len(worte))
