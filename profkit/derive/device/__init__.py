"""The device's side: what launched its work, when it was busy, and where the host waits for it."""
