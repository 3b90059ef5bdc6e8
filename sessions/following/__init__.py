"""Following sessions: the stream of their changes, and their logs.

Used by arrays, deployments, notifications and pages.
"""
