"""Reading the program's source: what the text says and a recording of a few steps cannot show. Nothing is run."""
