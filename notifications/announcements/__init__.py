"""Announcements of the operators to all users.

Used by its package alone.
"""
