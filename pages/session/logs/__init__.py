"""The logs of a session, with their colours.

Used by its package alone.
"""
