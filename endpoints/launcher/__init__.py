"""The dialog of a session's apps and ports.

Used by its package alone.
"""
