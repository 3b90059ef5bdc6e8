"""The demo's log-ins, groups and simulated hosts.

Used by its package alone.
"""
