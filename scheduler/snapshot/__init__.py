"""The cluster and the queue as the database has them, read for a pass.

Used by its package alone.
"""
