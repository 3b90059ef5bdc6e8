"""Commands of data folders."""
