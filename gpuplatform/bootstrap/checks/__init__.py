"""Checks of the sources that lint runs, and the audit of packages.

Run by make; imported by nothing.
"""
