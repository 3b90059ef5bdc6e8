"""The launch of a session: its image, group, mounts and name, and its end.

Used by gpuplatform, hostworker, pages and scheduler.
"""
