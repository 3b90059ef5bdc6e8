"""Import of users from a table.

Used by its package alone.
"""
