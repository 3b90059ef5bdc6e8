"""Downloads of files and archives by the API.

Used by its package alone.
"""
