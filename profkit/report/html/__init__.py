"""The report as a single self-contained page: no request, no font, no library.

Decisions, and why they were made:

- Other tools' pages still do some things better: pyinstrument shows the whole call tree, folds library frames and says
  how often it sampled; memray draws memory over the whole run and a flame graph of any window; Lighthouse folds each
  finding to a line and keeps its filters in the address.
"""
