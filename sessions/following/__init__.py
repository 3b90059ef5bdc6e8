"""Following sessions: the stream of their changes, and their logs.

Imported by the API, the sockets and pages.
"""
