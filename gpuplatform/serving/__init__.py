"""The web process: its server, its middleware and its ASGI applications.

Used by its package alone.
"""
