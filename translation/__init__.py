"""Languages of the pages: catalogues of texts, stored sentences, and the check that every text is marked."""
