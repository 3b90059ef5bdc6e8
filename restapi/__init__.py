"""What all of the HTTP API has in common: problem details, strict query parameters, and its schema."""
