"""How much a folder may hold, and how much it holds.

Imported by the services, uploads and sweeps of folders.
"""
