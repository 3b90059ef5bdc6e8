"""Changes of a running session's size.

Used by deployments, hostworker and pages.
"""
