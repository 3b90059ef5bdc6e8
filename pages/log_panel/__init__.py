"""The panel that shows output, with its colours.

Used by its package alone.
"""
