"""The report as a single self-contained page: no request, no font, no library.

Decisions, and why they were made:

- No button opens the trace in Perfetto. Its page would have to be fetched from ui.perfetto.dev, and the trace, which is
  often a hundred times as large as the report, would have to lie in the page to be sent there. A page that asks nobody
  for anything may be opened anywhere; so it names the command that writes the trace with the findings in it.
- A colour means the same in all pictures (``drawing.hue``, ``memory_timeline``): computing and what it keeps are blue,
  the backward pass and gradients light blue, the optimizer violet, what is loaded orange, waits vermilion. In a
  comparison orange is what got longer and blue what got shorter.
- Other tools' pages still do some things better: pyinstrument shows the whole call tree, folds library frames and says
  how often it sampled; memray draws memory over the whole run and a flame graph of any window; Lighthouse folds each
  finding to a line and keeps its filters in the address.
"""
