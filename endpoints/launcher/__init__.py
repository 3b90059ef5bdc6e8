"""The dialog of a session's apps and ports.

Imported by the addresses of endpoints.
"""
