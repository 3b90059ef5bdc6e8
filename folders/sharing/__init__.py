"""Folders with their owners, and who may use them in which way.

Imported by all that shows or mounts folders.
"""
