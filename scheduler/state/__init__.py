"""The scheduler's state between passes, and what it last told waiting sessions.

Used by its package alone.
"""
