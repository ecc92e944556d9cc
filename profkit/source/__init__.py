"""Reading the program: what its text says and a recording of a few steps cannot show, and its objects' attributes.
Nothing of it is run."""
