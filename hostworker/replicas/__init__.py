"""Replicas of deployments on this host: probed, and their health recorded.

Used by its package alone.
"""
