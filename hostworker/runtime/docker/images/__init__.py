"""Images of a Docker Engine: pulls, saved images and snapshots of containers.

Used by its package alone.
"""
