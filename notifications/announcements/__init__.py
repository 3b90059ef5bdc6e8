"""Announcements of the operators to all users.

Imported by the API, the pages and the administration of notifications.
"""
