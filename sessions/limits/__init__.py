"""Limits of users, projects and policies, and the locks under which they are checked.

Used by deployments, pages and scheduler.
"""
