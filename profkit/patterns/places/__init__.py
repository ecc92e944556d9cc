"""From events to lines: the frames and marks around an operator, and who called it."""
