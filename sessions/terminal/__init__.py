"""The web terminal: its sockets, messages and freshness.

Used by its package alone.
"""
