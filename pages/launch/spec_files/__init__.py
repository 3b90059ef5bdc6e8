"""The page that reads a spec file, script or task file: what it would make, the wizard filled in, or all of it made.

Used by its package alone.
"""
