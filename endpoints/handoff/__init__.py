"""How a signed-in browser is handed to an app's own origin: tickets and their pages.

Used by its package alone.
"""
