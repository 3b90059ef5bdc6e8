"""The launch page.

Used by its package alone.
"""
