"""The state of a group's hosts, its reservation, and preemption.

Used by its package alone.
"""
