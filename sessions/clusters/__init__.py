"""Clusters as a whole: their members end, and return to the queue, together.

Used by scheduler.
"""
