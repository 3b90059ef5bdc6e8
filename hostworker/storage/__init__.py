"""Disks of a host: layers, folders, quotas and shared memory, watched and bounded.

Imported by the agent and the containers' runner.
"""
