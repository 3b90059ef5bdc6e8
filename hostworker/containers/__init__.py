"""The life of one session's container: run, park, resize, mounts and environment.

Used by its package alone.
"""
