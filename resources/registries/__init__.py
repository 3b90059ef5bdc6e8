"""Container registries: the credentials that hosts pull and push with, and what a registry says about an image.

Used by gpuplatform, hostaccess, hostworker, operations and sessions.
"""
