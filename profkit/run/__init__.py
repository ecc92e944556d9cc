"""What one recording is on disk: its directory, its records, its plan, and requests to other processes."""
