"""What every other room may use: errors, units, marks, printing, files, the guard around unforeseen failures."""
