"""How near each launch comes to what the device could do: operations and bytes by shapes, rates by data sheet.

Decisions, and why they were made:

- What a call demands is the least that its definition asks for: each input is read once, each result written once, and
  a causal mask halves attention. No kernel can do with less, so a share of the possible is never flattered.
- The call nearest to a kernel counts (``launches.py``). Under autocast the outer one has the wrong type, and a
  composite's parts have kernels of their own.
- Bytes may come from caches, so small tensors seem to move faster than the memory. Shares are cut at one. A call far
  beyond what any device does demands less than its shapes say, and counts as unknown (``launches.py``).
"""
