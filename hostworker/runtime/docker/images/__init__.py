"""Images of a Docker Engine: pulls, saved images and snapshots of containers.

Imported by the Docker runtime.
"""
