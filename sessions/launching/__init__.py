"""The launch of a session: its image, group, mounts and name, and its end.

Used by deployments, gpuplatform, hostworker, imports, pages, scheduler and specs.
"""
