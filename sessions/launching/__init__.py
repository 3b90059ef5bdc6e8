"""The launch of a session: its image, group, mounts and name, and its end.

Used by arrays, deployments, gpuplatform, hostworker, imports, pages, scheduler and specs.
"""
