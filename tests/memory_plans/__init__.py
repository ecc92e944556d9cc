"""Plans of memory beside what real training steps take."""
