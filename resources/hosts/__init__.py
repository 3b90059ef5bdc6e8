"""Hosts in their groups: registration, bounds, health, and who may use them.

Imported by the scheduler, the host worker and sessions.
"""
