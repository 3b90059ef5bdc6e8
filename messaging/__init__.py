"""Redis: where it is, by one URL of a server or of Sentinels, and clients of it. No Django: settings are made of it."""
