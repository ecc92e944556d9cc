"""The report as one page that needs nothing else: no request, no font, no library."""
