"""The web process: its server, its middleware and its ASGI applications.

Imported by the wiring.
"""
