"""How a signed-in browser is handed to an app's own origin: tickets and their pages.

Imported by the addresses of endpoints and by the app proxy's control plane.
"""
