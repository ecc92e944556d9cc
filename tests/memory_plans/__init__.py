"""Memory plans compared with what real training steps take."""
