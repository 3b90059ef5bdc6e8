"""The state of a group's hosts, its reservation, and preemption.

Imported by what decides in the core.
"""
