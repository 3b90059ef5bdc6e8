"""Projects as their members use them.

Imported by the API and pages.
"""
