"""Following sessions: the stream of their changes, and their logs.

Used by deployments, notifications and pages.
"""
