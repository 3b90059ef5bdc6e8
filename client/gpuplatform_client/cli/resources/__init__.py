"""Commands that are rows of a table: a collection of the API, and what may be done with its objects."""
