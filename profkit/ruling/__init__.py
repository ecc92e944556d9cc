"""What rules share besides the evidence: the places that they name, and edits that several price alike."""
