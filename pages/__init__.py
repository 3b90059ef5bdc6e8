"""Server-rendered pages that draw on several packages."""
