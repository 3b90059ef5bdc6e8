"""The demo's log-ins, groups and simulated hosts.

Imported by the management commands alone.
"""
