"""The page of notifications and their preferences, live.

Imported by the addresses.
"""
