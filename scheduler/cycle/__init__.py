"""The scheduling cycle: passes over groups, preemption, and forecasts afterwards.

Used by its package alone.
"""
