"""What hosts have free, and which of them a request takes.

Used by its package alone.
"""
