"""Limits of users, projects and policies, and the locks under which they are checked.

Used by arrays, deployments, pages and scheduler.
"""
