"""Second factors: time-based codes, recovery codes, and when they are demanded.

Used by operations and resources.
"""
