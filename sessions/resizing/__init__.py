"""Changes of a running session's size.

Used by hostworker and pages.
"""
