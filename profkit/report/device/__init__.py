"""What a device did and could do, in words: the roofline, and the steps of an engine that serves."""
