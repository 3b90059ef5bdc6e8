"""Apps in a container: how they are started, probed and counted as active.

Used by endpoints.
"""
