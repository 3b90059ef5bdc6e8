"""The scheduler's state between passes, and what it last told waiting sessions.

Imported by the cycle and advice.
"""
