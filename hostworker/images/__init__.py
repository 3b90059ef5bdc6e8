"""Images of a host: which are there, and how they are pulled, made and converted.

Used by its package alone.
"""
