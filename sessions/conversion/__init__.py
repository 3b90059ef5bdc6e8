"""Images made from sessions, and reports of what a session has changed.

Imported by the API, the host worker and pages.
"""
