"""Places waiting sessions on hosts; has no models of its own."""
