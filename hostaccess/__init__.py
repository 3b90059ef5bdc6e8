"""Hosts join once, and have credentials of their own: a database role, Redis users and a key."""
