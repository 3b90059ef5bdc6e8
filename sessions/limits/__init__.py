"""Limits of users, projects and policies, and the locks under which they are checked.

Imported by launching, parking and resizing.
"""
