"""The worker of a host: it starts, reconciles and stops what the database says.

Used by its package alone.
"""
