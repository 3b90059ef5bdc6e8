"""Uploads that can be resumed (tus 1.0).

Used by its package alone.
"""
