"""What rules share besides the evidence: the places that they name, and the edits that several of them hand over."""
