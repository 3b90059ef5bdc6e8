"""The protocol by which the hook is tried on a real GPU.

Used by resources.
"""
