"""Import of users from a table.

Imported by the administration.
"""
