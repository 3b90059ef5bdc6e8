"""Parking: a session gives its place back and returns with its files.

Used by deployments, hostworker, notifications and pages.
"""
