"""The order of requests: fair share and limits.

Used by its package alone.
"""
