"""What was tried by running it: scenarios (`profkit verify`) and changes of a program (`profkit fix`)."""
