"""Python functions of a program, run in sessions; for programs, and the magic of notebooks (`magic`)."""
