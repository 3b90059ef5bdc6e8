"""Hosts in their groups: registration, bounds, health, and who may use them.

Used by hostworker, notifications, operations, scheduler and sessions.
"""
