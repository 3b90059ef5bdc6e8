"""The scheduling cycle: passes over groups, preemption, and forecasts afterwards.

Imported by the tasks of the scheduler.
"""
