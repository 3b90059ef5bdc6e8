"""Scaling: how many replicas a deployment wants by its load, between its bounds, and none while nobody uses it.

Used by endpoints and pages.
"""
