"""Data folders: where they lie, whose they are, and what is done with the files in them."""
