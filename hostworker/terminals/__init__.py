"""Messages to the terminals of a session, and its SSH keys.

Used by its package alone.
"""
