"""Changes of a running session's size.

Imported by the API, the host worker and pages.
"""
