"""The app proxy's data plane as an ASGI application.

Imported by the web process.
"""
