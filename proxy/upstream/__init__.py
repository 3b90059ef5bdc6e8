"""Connections to apps, pooled.

Used by its package alone.
"""
