"""A session's container as a new image: what changed, which of it is saved, and the layer that holds it. No Django.

Used by its package alone.
"""
