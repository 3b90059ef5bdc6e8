"""Checks of the sources that lint runs, and the audit of packages.

Used by its package alone.
"""
