"""Pictures of the recorded steps: how facts become what reports draw, of bounded size for a trace of any length."""
