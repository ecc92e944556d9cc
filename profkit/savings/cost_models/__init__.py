"""How long work takes at best on a device: published rates, and what keeps programs below them."""
