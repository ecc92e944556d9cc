"""Reading the program's source text: what it says and a recording of a few steps cannot show. Nothing is run."""
