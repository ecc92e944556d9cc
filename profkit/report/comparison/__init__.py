"""Two diagnoses compared, as text and Markdown; the page lies with the other pages."""
