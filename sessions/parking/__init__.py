"""Parking: a session gives its place back and returns with its files.

Imported by the API, the scheduler, the host worker and pages.
"""
