"""The API's operations as values without I/O, and what finds rows by their names."""
