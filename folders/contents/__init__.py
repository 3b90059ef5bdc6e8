"""What a folder contains, as the API lists and changes it.

Used by its package alone.
"""
