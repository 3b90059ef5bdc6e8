"""Session images: the catalogue, and what builds and registers it. Runs nothing; sessions do."""
