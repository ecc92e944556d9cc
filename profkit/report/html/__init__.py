"""The report as a single self-contained page: no request, no font, no library."""
