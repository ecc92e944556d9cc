"""The program's text, and its objects' attributes: what a recording of a few steps cannot show. Nothing of it is run.

Decisions, and why they were made:

- No hint without proof in the text. In 2,900 files of public repositories, four lines in two programs prove that a
  result is rarely used (``evaluations.py``); the recording must show the rest.
- Code is harmless only if all its calls are known to be (``side_effects.py``): functions of the file are read, tensor
  methods are listed, models are made in the file. A list of names with effects would let every other name pass.
- A fix is shown as a changed line only if the line proves it (``changes.py``): a literal, with all arguments in sight.
  If a variable holds the value, or the call continues on the next line, the fix stays in words.
"""
