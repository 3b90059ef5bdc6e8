"""The form of a new deployment or revision: what a folder proposes for it, and whether there is room.

Used by its package alone.
"""
