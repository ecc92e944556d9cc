"""How long work takes at best on a device: published rates, and what keeps programs below them.

Decisions, and why they were made:

- A cost model is a ratio of rooflines (``roofline.py``), so an operator's distance from its peak cancels. GPUs have the
  rates of their data sheets, by exact name; CPUs those measured on them. Both are saved in ``run.json``.
- The gain from pinned memory follows from the recording's own copies, else from the GPU's link (``bus.py``), with a
  wide interval: the data sheet's link may be shared, or have fewer lanes.
"""
