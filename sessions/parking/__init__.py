"""Parking: a session gives its place back and returns with its files.

Used by hostworker, notifications and pages.
"""
