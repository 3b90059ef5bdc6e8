"""Following sessions: the stream of their changes, and their logs.

Used by notifications and pages.
"""
