"""The logs of a session, with their colours.

Imported by the addresses of pages.
"""
