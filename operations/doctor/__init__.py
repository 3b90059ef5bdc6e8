"""Checks of a machine and its services that say what is missing and what to do.

Imported by the command `doctor` and by the set-up.
"""
