"""The help: the documents of the project as pages.

Used by its package alone.
"""
