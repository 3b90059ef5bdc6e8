"""Hosts in their groups: registration, bounds, health, and who may use them.

Used by folders, hostworker, notifications, operations, pages, scheduler and sessions.
"""
