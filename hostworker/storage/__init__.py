"""Disks of a host: layers, folders, quotas and shared memory, watched and bounded.

Used by its package alone.
"""
