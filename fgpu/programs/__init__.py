"""Other people's programs on the simulated driver: their own tests, unmodified, with the hook and without it.

Used by its package alone.
"""
