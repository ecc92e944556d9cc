"""Pictures of the recorded steps: what reports draw, bounded whatever the trace's length, and how facts become it."""
