"""What a launch of many ranks would save: edits of several ranks' steps, and pipelines."""
